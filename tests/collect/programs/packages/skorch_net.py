# /// script
# requires-python = ">=3.11"
# dependencies = ["skorch", "torch"]
# ///
"""A grid search of scikit-learn over a net of skorch."""

import torch
from sklearn.model_selection import GridSearchCV
from skorch import NeuralNetRegressor

torch.manual_seed(0)
x = torch.randn(64, 8)
net = NeuralNetRegressor(torch.nn.Linear, module__in_features=8, module__out_features=1, max_epochs=2, verbose=0)
search = GridSearchCV(net, {"lr": [0.01, 0.02]}, cv=2, scoring="neg_mean_squared_error")
search.fit(x.numpy(), x[:, :1].numpy())
print(search.best_params_, float(search.best_score_).hex())
