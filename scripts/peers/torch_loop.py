"""FedAvg as a plain PyTorch loop over the clients."""

import os

import torch
import torch_models
import work

given = work.from_command_line()
torch.set_num_threads(len(os.sched_getaffinity(0)))
model = torch_models.make(given.problem)
torch_models.load(model, given.start)
clients = [torch_models.tensors(given.problem, arrays) for arrays in given.clients]
learned = [parameter for parameter in model.parameters() if parameter.requires_grad]
# Adam's moments go on over rounds, as those of a loop with one optimizer do.
adam = None
if "epsilon" in given.problem:
    adam = torch.optim.Adam(learned, lr=given.problem["rate"], eps=given.problem["epsilon"])
current = [parameter.detach().clone() for parameter in learned]
given.stamp()
for steps, batch in given.rounds:
    total = [torch.zeros_like(value) for value in current]
    for features, labels in clients:
        with torch.no_grad():
            for parameter, value in zip(learned, current, strict=True):
                parameter.copy_(value)
        torch_models.local_training(model, given.problem, features, labels, steps, batch, adam)
        with torch.no_grad():
            for place, parameter in zip(total, learned, strict=True):
                place += parameter / len(clients)
    current = total
    given.stamp()
with torch.no_grad():
    for parameter, value in zip(learned, current, strict=True):
        parameter.copy_(value)
given.finish(torch_models.weights(model, given.start))
