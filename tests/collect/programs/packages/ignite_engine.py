# /// script
# requires-python = ">=3.11"
# dependencies = ["pytorch-ignite", "torch"]
# ///
"""An engine of ignite, with a running average and an evaluator."""

import torch
from ignite.engine import Events, create_supervised_evaluator, create_supervised_trainer
from ignite.metrics import Loss, RunningAverage

torch.manual_seed(0)
model = torch.nn.Linear(8, 1)
data = [(x, x[:, :1]) for x in torch.randn(8, 4, 8)]
loss = torch.nn.MSELoss()
trainer = create_supervised_trainer(model, torch.optim.SGD(model.parameters(), lr=0.01), loss)
evaluator = create_supervised_evaluator(model, {"loss": Loss(loss)})
RunningAverage(output_transform=lambda x: x).attach(trainer, "average")


@trainer.on(Events.EPOCH_COMPLETED)
def evaluate(engine):
    evaluator.run(data)
    print(engine.state.metrics["average"].hex(), evaluator.state.metrics["loss"].hex())


trainer.run(data, max_epochs=2)
