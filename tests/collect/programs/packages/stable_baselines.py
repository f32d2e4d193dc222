# /// script
# requires-python = ">=3.11"
# dependencies = ["gymnasium", "stable-baselines3", "torch"]
# ///
"""Trains a policy with stable-baselines3: many calls of the policy come before the first step."""

import gymnasium
import numpy as np
from stable_baselines3 import DQN


class Line(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-10, 10, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at, self.left = 0.0, 20
        return np.array([self.at], np.float32), {}

    def step(self, action):
        self.at += 1 if action else -1
        self.left -= 1
        return np.array([self.at], np.float32), -abs(self.at), self.left == 0, False, {}


model = DQN("MlpPolicy", Line(), seed=0, learning_starts=200, device="cpu", train_freq=20)
model.learn(600)
print(model.predict(np.array([3.0], np.float32))[0], sum(p.sum().item() for p in model.policy.parameters()).hex())
