# /// script
# requires-python = ">=3.11"
# dependencies = ["diffusers", "torch"]
# ///
"""Trains and samples a small U-Net of diffusers."""

import torch
from diffusers import DDPMPipeline, DDPMScheduler, UNet2DModel

torch.manual_seed(0)
model = UNet2DModel(
    sample_size=16,
    in_channels=1,
    out_channels=1,
    block_out_channels=(8, 16),
    norm_num_groups=4,
    down_block_types=("DownBlock2D", "AttnDownBlock2D"),
    up_block_types=("AttnUpBlock2D", "UpBlock2D"),
)
scheduler = DDPMScheduler(num_train_timesteps=10)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.001)
for _ in range(8):
    images, noise, times = torch.randn(2, 1, 16, 16), torch.randn(2, 1, 16, 16), torch.randint(0, 10, (2,))
    loss = torch.nn.functional.mse_loss(model(scheduler.add_noise(images, noise, times), times).sample, noise)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
pipeline = DDPMPipeline(model, scheduler)
pipeline.set_progress_bar_config(disable=True)
print(loss.item().hex(), pipeline(num_inference_steps=3, output_type="np").images.sum().item().hex())
