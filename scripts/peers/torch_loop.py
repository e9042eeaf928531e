"""FedAvg as a plain PyTorch loop over the clients."""

import os

import torch
import torch_models
import work

job = work.from_command_line()
torch.set_num_threads(len(os.sched_getaffinity(0)))
model = torch_models.make(job.problem)
torch_models.load(model, job.start)
clients = [torch_models.tensors(job.problem, arrays) for arrays in job.clients]
trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
# Adam's moments are kept between rounds, as in a loop with one optimizer.
adam = None
if "epsilon" in job.problem:
    adam = torch.optim.Adam(trained, lr=job.problem["rate"], eps=job.problem["epsilon"])
current = [parameter.detach().clone() for parameter in trained]
job.stamp()
for steps, batch in job.rounds:
    total = [torch.zeros_like(value) for value in current]
    for features, labels in clients:
        with torch.no_grad():
            for parameter, value in zip(trained, current, strict=True):
                parameter.copy_(value)
        torch_models.local_training(model, job.problem, features, labels, steps, batch, adam)
        with torch.no_grad():
            for value_sum, parameter in zip(total, trained, strict=True):
                value_sum += parameter / len(clients)
    current = total
    job.stamp()
with torch.no_grad():
    for parameter, value in zip(trained, current, strict=True):
        parameter.copy_(value)
job.finish(torch_models.weights(model, job.start))
