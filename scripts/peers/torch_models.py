"""The models as usually written in PyTorch, and a client's local training."""

import numpy as np
import torch
from torch import nn


class LogisticRegression(nn.Module):
    def __init__(self, width: int, classes: int):
        super().__init__()
        self.classifier = nn.Linear(width, classes)

    def forward(self, x):
        return self.classifier(x)


class LSTM(nn.Module):
    def __init__(self, words: int, width: int, units: int, classes: int):
        super().__init__()
        self.vectors = nn.Embedding(words, width)
        self.lstm = nn.LSTM(width, units, batch_first=True)
        self.lstm.bias_hh_l0.requires_grad_(False)  # two trained biases would move their sum twice as far
        self.classifier = nn.Linear(units, classes)

    def forward(self, tokens):
        _, (state, _) = self.lstm(self.vectors(tokens))
        return self.classifier(state[-1])


class PCNN(nn.Module):
    def __init__(
        self, words: int, width: int, position_width: int, limit: int, filters: int, window: int, classes: int
    ):
        super().__init__()
        self.vectors = nn.Embedding(words, width)
        self.positions = nn.ModuleList(nn.Embedding(2 * limit + 1, position_width) for _ in range(2))
        self.convolution = nn.Conv1d(width + 2 * position_width, filters, window, padding="same")
        self.classifier = nn.Linear(3 * filters, classes)
        self.limit = limit

    def forward(self, input_ids, head_start, tail_start):
        positions = torch.arange(input_ids.shape[1])
        starts = head_start[:, None], tail_start[:, None]
        distances = [(positions - start).clamp(-self.limit, self.limit) + self.limit for start in starts]
        vectors = [self.vectors(input_ids), *(table(d) for table, d in zip(self.positions, distances, strict=True))]
        features = self.convolution(torch.cat(vectors, -1).transpose(1, 2))
        segment = (positions > starts[0]).int() + (positions > starts[1])
        pieces = [features.masked_fill((segment != s)[:, None], -torch.inf).amax(-1) for s in range(3)]
        pieces = [torch.where(piece == -torch.inf, 0.0, piece) for piece in pieces]  # a segment without tokens
        return self.classifier(torch.tanh(torch.cat(pieces, -1)))


class Encoder(nn.Module):
    """A BERT of the transformers library, the sums over the two mentions, a linear classifier."""

    def __init__(self, config: dict, dropout: float | None, classes: int):
        super().__init__()
        from transformers import BertConfig, BertModel

        rates = {} if dropout is None else {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
        self.bert = BertModel(BertConfig(**config, **rates), add_pooling_layer=False)
        self.classifier = nn.Linear(2 * config["hidden_size"], classes, bias=False)

    def forward(self, input_ids, attention_mask, head_mask, tail_mask):
        outputs = self.bert(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        sums = [(outputs * mask[..., None]).sum(1) for mask in (head_mask, tail_mask)]
        return self.classifier(torch.cat(sums, -1))


KINDS = {"lr": LogisticRegression, "lstm": LSTM, "pcnn": PCNN, "encoder": Encoder}
INPUT_NAMES = {
    "lr": ("x",),
    "lstm": ("tokens",),
    "pcnn": ("input_ids", "head_start", "tail_start"),
    "encoder": ("input_ids", "attention_mask", "head_mask", "tail_mask"),
}
_LAYERS = {
    "lstm": {"kernel": "lstm.weight_ih_l0", "recurrent_kernel": "lstm.weight_hh_l0", "bias": "lstm.bias_ih_l0"},
    "word_vectors": {"embeddings": "vectors.weight"},
    "head_position_vectors": {"embeddings": "positions.0.weight"},
    "tail_position_vectors": {"embeddings": "positions.1.weight"},
}
_PARAMETERS = {"kernel": "weight", "gamma": "weight", "beta": "bias", "embeddings": "weight"}


def make(problem: dict) -> nn.Module:
    """The model of problem.json."""
    return KINDS[problem["kind"]](**problem["sizes"])


def _torch_name(name: str) -> str:
    if name.startswith("encoder/"):
        name = name.removeprefix("encoder/").replace("layer_._", "layer/")
    layer, _, variable = name.rpartition("/")
    return (
        _LAYERS[layer][variable]
        if layer in _LAYERS
        else f"{layer}.{_PARAMETERS.get(variable, variable)}".replace("/", ".")
    )


def load(model: nn.Module, weights: dict[str, np.ndarray]) -> None:
    """Assigns weights with the names and layout of `start`; ValueError if one that the model trains is missing."""
    missing = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    with torch.no_grad():
        for name, value in weights.items():
            torch_name = _torch_name(name)
            model.get_parameter(torch_name).copy_(torch.from_numpy(value.T if name.endswith("kernel") else value))
            missing.discard(torch_name)
        if isinstance(model, LSTM):
            model.lstm.bias_hh_l0.zero_()
    if missing:
        raise ValueError(f"no value for {sorted(missing)}")


def weights(model: nn.Module, names) -> dict[str, np.ndarray]:
    """The model's weights with the names and layout of `start`."""
    values = {name: model.get_parameter(_torch_name(name)).detach().numpy() for name in names}
    return {name: value.T.copy() if name.endswith("kernel") else value.copy() for name, value in values.items()}


def tensors(problem: dict, arrays: dict[str, np.ndarray]) -> tuple[list[torch.Tensor], torch.Tensor]:
    """(the arrays that the model reads, labels) of a client."""
    features = [torch.from_numpy(arrays[name]) for name in INPUT_NAMES[problem["kind"]]]
    return features, torch.from_numpy(arrays["y"]).long()


def local_training(model: nn.Module, problem: dict, features, labels, steps: int, batch: int, optimizer=None) -> None:
    """Trains `steps` steps over a client's batches, in order."""
    model.train()
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=problem["rate"])
    for begin in range(0, steps * batch, batch):
        optimizer.zero_grad()
        logits = model(*(values[begin : begin + batch] for values in features))
        nn.functional.cross_entropy(logits, labels[begin : begin + batch]).backward()
        optimizer.step()
