"""A server that ends well after SIGINT."""

import itertools
import os
import signal
import sys
import threading
import time

import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))


def stop(number, frame):
    print("stopped")
    sys.exit(0)


signal.signal(signal.SIGINT, stop)
for number in itertools.count():
    model(torch.ones(1, 8))
    time.sleep(0.01)
    if number == 20:
        threading.Timer(0.1, os.kill, [os.getpid(), signal.SIGINT]).start()
