"""What the conformance suite knows of single algorithms; a registered algorithm without an entry is tested, too.

An entry adds the numbers: `expected` works one round out in NumPy, and `like` names algorithms with the same numbers.
Options that an algorithm does not have are skipped; it cannot be built without `required`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from tests.computations import toolbox

NUM_AT_SERVER = 12
"""Number of examples at the server, for algorithms that need them."""

STEPS = 3
"""Local steps of the worked-out round, on all examples at once; the proximal term shows from the second on."""


@dataclass(frozen=True)
class Case:
    """Attributes:
    expected: (start weights, [(x, y) of each client], options) -> the new global weights.
    like: algorithms whose numbers are the same.
    options: of the worked-out round.
    extra_traffic: bytes per direction, client and round in addition to one model and 200.
    required: options without a default that works, for the two clients of the suite.
    constant_term: of the local loss on a model without an encoder, from the second round on.
    uploads: bytes that a client gives away where that is not a model.
    bags: whether its examples lie in bags (toolbox.in_bags).
    effective_with: option -> other options with which it has an effect in two rounds of the suite.
    without_effect: option -> why it has no effect in the suite.
    """

    expected: Callable | None = None
    like: frozenset[str] = frozenset()
    options: dict = field(default_factory=dict)
    extra_traffic: int = 0
    required: dict = field(default_factory=dict)
    constant_term: float = 0.0
    uploads: int | None = None
    bags: bool = False
    effective_with: dict = field(default_factory=dict)
    without_effect: dict = field(default_factory=dict)


def by_examples(updates, sizes):
    """The mean weighted by numbers of examples."""
    return [np.average(layer, axis=0, weights=sizes) for layer in zip(*updates, strict=True)]


def plain_mean(updates, sizes):
    """The plain mean."""
    del sizes
    return [np.mean(layer, axis=0) for layer in zip(*updates, strict=True)]


def by_attention(updates, sizes):
    """sum_k softmax(||D_k||)_k D_k for every layer (FLCMC, Eqs. 11-13)."""
    del sizes
    layers = [np.stack(layer) for layer in zip(*updates, strict=True)]
    attention = [toolbox.softmax(np.sqrt((layer**2).reshape(len(layer), -1).sum(axis=1))) for layer in layers]
    return [np.einsum("k,k...->...", a, layer) for a, layer in zip(attention, layers, strict=True)]


def ensemble_distillation(start, data, options):
    """FedED: the mean of the clients' logits on the server's examples, then a pass there (Eqs. 3-6)."""
    x, y = toolbox.examples(NUM_AT_SERVER, seed=40)
    logits = []
    for client_x, client_y in data:
        rule = toolbox.Adam(options.learning_rate)
        weights = toolbox.train(start, client_x, client_y, [np.arange(len(client_y))] * STEPS, rule)
        logits.append(x.astype(float) @ weights[0] + weights[1])
    teacher = toolbox.softmax(np.mean(logits, axis=0) / options.temperature)
    student = toolbox.Adam(options.learning_rate)
    weights = [w.astype(float) for w in start]
    for _ in range(options.server_epochs):  # a batch holds all of the server's examples
        # The gradient of KL(q || p) by the student's logits is p - q.
        p = toolbox.softmax(x.astype(float) @ weights[0] + weights[1])
        extra = options.distillation_weight * (p - teacher)
        weights = student.step(weights, toolbox.gradient(weights, x, y, extra))
    return weights


def normalised(start, data, options):
    """FedNova with SGD of momentum rho: each client's own number of steps, its accumulated coefficients added up."""
    rho, directions, sizes = options.local_momentum, [], []
    for k, (x, y) in enumerate(data):
        rows = list(toolbox.batches((0, k), len(y), options.batch_size, options.local_epochs))
        weights, velocity = [w.astype(float) for w in start], [0.0, 0.0]
        for batch in rows:
            slopes = toolbox.gradient(weights, x[batch], y[batch])
            velocity = [rho * v + g for v, g in zip(velocity, slopes, strict=True)]
            weights = [w - options.learning_rate * v for w, v in zip(weights, velocity, strict=True)]
        # Gradient s is in the velocities of the steps s, s + 1, ...
        sizes.append(sum(rho**later for s in range(len(rows)) for later in range(len(rows) - s)))
        directions.append([u / sizes[-1] for u in toolbox.difference(start, weights)])
    counts = [len(y) for _, y in data]
    factor = options.server_step * np.average(sizes, weights=counts)
    return [w - factor * d for w, d in zip(start, by_examples(directions, counts), strict=True)]


def dynamic(start, data, options):
    """FedDyn's first round: only the proximal term, then w - mean - h / alpha, h = alpha |S| / N * mean."""
    updates = []
    for x, y in data:
        rows = [np.arange(len(y))] * STEPS
        local = toolbox.train(start, x, y, rows, toolbox.Sgd(options.learning_rate), options.alpha)
        updates.append(toolbox.difference(start, local))
    further = 1 + len(data) / options.num_clients
    return [w - further * u for w, u in zip(start, plain_mean(updates, None), strict=True)]


def simplex(kernel):
    """sqrt(C / (C - 1)) U (I - 1/C), U of the kernel's QR factors with a positive diagonal."""
    classes = kernel.shape[1]
    q, r = np.linalg.qr(kernel.astype(float))
    return np.sqrt(classes / (classes - 1)) * (q * np.sign(np.diag(r))) @ (np.eye(classes) - 1 / classes)


def simplex_alone(start, data, options):
    """FedETF of a model that has a classifier and no more: it is fixed, and the bias is zero."""
    return [simplex(start[0]), np.zeros(3)]


def mean_and_server_pass(start, data, options):
    """FedAvg's step with Adam, and then the server's own passes, a batch of all its examples each."""
    x, y = toolbox.examples(NUM_AT_SERVER, seed=40)
    weights, rule = three_choices(by_examples, toolbox.Adam)(start, data, options), toolbox.Adam(options.learning_rate)
    for _ in range(options.server_epochs):
        weights = rule.step(weights, toolbox.gradient(weights, x, y))
    return weights


def three_choices(combine, rule, proximal=False):
    """Aggregation, local optimizer, proximal term or not: the tables of FLCMC."""

    def expected(start, data, options):
        mu = options.mu if proximal else 0.0
        updates = [
            toolbox.difference(
                start, toolbox.train(start, x, y, [np.arange(len(y))] * STEPS, rule(options.learning_rate), mu)
            )
            for x, y in data
        ]
        update = combine(updates, [len(y) for _, y in data])
        return [w - options.server_step * u for w, u in zip(start, update, strict=True)]

    return expected


def local_bags(kind):
    """SGD on the client's own bags, clients weighted by their sentences (FedDS, Algorithm 3)."""

    def expected(start, data, options):
        updates = []
        for x, y in data:
            steps = [toolbox.bags_by_triple(toolbox.triples_of(y))] * STEPS
            updates.append(
                toolbox.difference(start, toolbox.train_on_bags(kind, start, x, y, steps, options.learning_rate))
            )
        update = by_examples(updates, [len(y) for _, y in data])
        return [w - options.server_step * u for w, u in zip(start, update, strict=True)]

    return expected


def winners(start, data):
    """[(platform, row)] of the best sentence of every triple."""
    offers = {}
    for platform, (x, y) in enumerate(data):
        p = toolbox.softmax(x.astype(float) @ start[0] + start[1])
        for row, triple in enumerate(toolbox.triples_of(y)):
            offers.setdefault(triple, []).append((-p[row, y[row]], platform, row))
    return [best[1:] for best in map(min, offers.values())]


def best_of_each_triple(start, data, options):
    """Lazy MIL: of every triple the best sentence over all clients trains; clients count by these (FedDS, Eq. 5)."""
    updates, sizes = [], []
    for platform, (x, y) in enumerate(data):
        rows = np.array([row for winner, row in winners(start, data) if winner == platform])
        local = toolbox.train(start, x, y, [rows] * STEPS, toolbox.Sgd(options.learning_rate))
        updates.append(toolbox.difference(start, local))
        sizes.append(len(rows))
    return [w - options.server_step * u for w, u in zip(start, by_examples(updates, sizes), strict=True)]


def winners_at_every_client(start, data, options):
    """The control of Lazy MIL: every client trains on the winners of all clients, so that their mean is one of them."""
    x, y = (np.array([data[platform][index][row] for platform, row in winners(start, data)]) for index in (0, 1))
    local = toolbox.train(start, x, y, [np.arange(len(y))] * STEPS, toolbox.Sgd(options.learning_rate))
    return [w - options.server_step * u for w, u in zip(start, toolbox.difference(start, local), strict=True)]


ONE_CLASSIFIER = "the suite's model is its classifier, which FedETF fixes"
NO_ENCODER = "without an encoder both cosines of the contrast are 1"
MORE_TRIPLES = {"num_triples": "more than there are: no client has the others"}
GRANULARITY = {"granularity": {"aggregation": "attention"}}
AT_SERVER = {"num_server_examples": "it is the number of rows in what the server holds; another does not fit them"}
SGD = {"learning_rate": 0.4, "mu": 0.8, "server_step": 1.5}
ADAM = {"learning_rate": 0.1, "mu": 0.8, "server_step": 1.5}
IN_BAGS = {"learning_rate": 0.3, "server_step": 1.5}
NUM_TRIPLES = 3 * toolbox.TRIPLES_OF_A_LABEL
ADAM_AND_MEAN = frozenset({"fedavgs", "fedavgt", "fedcmc", "moon", "feddecorr"})

CASES = {
    "fedavg": Case(three_choices(by_examples, toolbox.Sgd), options=SGD),
    "fedprox": Case(three_choices(by_examples, toolbox.Sgd, proximal=True), options=SGD),
    "fedatt": Case(three_choices(by_attention, toolbox.Sgd), options=SGD),
    "fedpa": Case(three_choices(by_attention, toolbox.Sgd, proximal=True), options=SGD),
    "fedavgs": Case(three_choices(by_examples, toolbox.Adam), options=ADAM, like=ADAM_AND_MEAN),
    "fedavgt": Case(three_choices(by_examples, toolbox.Adam), options=ADAM, like=ADAM_AND_MEAN),
    "fedproxp": Case(three_choices(by_examples, toolbox.Adam, proximal=True), options=ADAM),
    "fedatts": Case(three_choices(by_attention, toolbox.Adam), options=ADAM),
    "fedpap": Case(three_choices(by_attention, toolbox.Adam, proximal=True), options=ADAM),
    # Without an encoder their contrasts train nothing. Both cosines of MOON's are 1 then: a loss of -log(1/2).
    "fedcmc": Case(three_choices(by_examples, toolbox.Adam), options=ADAM, like=ADAM_AND_MEAN),
    "moon": Case(
        three_choices(by_examples, toolbox.Adam),
        options=ADAM,
        like=ADAM_AND_MEAN,
        constant_term=float(np.log(2)),
        without_effect={"tau": NO_ENCODER},
    ),
    # The penalty on features that are no weights' work.
    "feddecorr": Case(
        three_choices(by_examples, toolbox.Adam), options=ADAM, like=ADAM_AND_MEAN, constant_term=0.1 / 3
    ),
    "fedetf": Case(
        simplex_alone,
        options=ADAM,
        without_effect=dict.fromkeys(
            (
                *("learning_rate", "learning_rate_decay", "learning_rate_decay_form", "max_gradient_norm"),
                *("weighting", "optimizer"),
            ),
            ONE_CLASSIFIER,
        ),
    ),
    "fednova": Case(
        normalised,
        options={
            "learning_rate": 0.4,
            "server_step": 1.5,
            "local_momentum": 0.5,
            "local_steps": None,
            "local_epochs": 2,
            "batch_size": 4,
        },
        effective_with={"optimizer": {"local_momentum": 0.0}},
    ),
    "feddyn": Case(dynamic, options={"learning_rate": 0.4, "alpha": 0.8}, required={"num_clients": 2}),
    "fedavg_server_pass": Case(
        mean_and_server_pass,
        options={"learning_rate": 0.1, "server_step": 1.5, "server_epochs": 2},
        required={"num_server_examples": NUM_AT_SERVER},
        without_effect=AT_SERVER,
    ),
    # The unweighted mean; otherwise as MOON.
    "fedlcc": Case(
        three_choices(plain_mean, toolbox.Adam),
        options={"learning_rate": 0.1, "mu": 0.8, "server_step": 1.5},
        constant_term=0.1 * float(np.log(2)),
        without_effect=dict.fromkeys(("tau", "previous"), NO_ENCODER),
    ),
    "feded": Case(
        ensemble_distillation,
        options={"learning_rate": 0.1, "temperature": 2.0, "distillation_weight": 0.7, "server_epochs": 2},
        required={"num_server_examples": NUM_AT_SERVER},
        extra_traffic=NUM_AT_SERVER * 3 * 4,
        uploads=NUM_AT_SERVER * 3 * 4,
        effective_with={"agreement_temperature": {"weighting": "agreement"}},
        without_effect={**AT_SERVER, "num_server_rows": "the suite's examples make a row each"},
    ),
    # In the first round all control variates are zero. They are a second model, each way.
    "scaffold": Case(
        three_choices(plain_mean, toolbox.Sgd), options=SGD, required={"num_clients": 2}, extra_traffic=4 * (3 * 3 + 3)
    ),
    "mil_none": Case(three_choices(by_examples, toolbox.Sgd), options=IN_BAGS, bags=True, effective_with=GRANULARITY),
    "mil_one": Case(local_bags("one"), options=IN_BAGS, bags=True, effective_with=GRANULARITY),
    "mil_ave": Case(local_bags("ave"), options=IN_BAGS, bags=True, effective_with=GRANULARITY),
    "mil_att": Case(local_bags("att"), options=IN_BAGS, bags=True, effective_with=GRANULARITY),
    "mil_att_ra": Case(local_bags("att_ra"), options=IN_BAGS, bags=True, effective_with=GRANULARITY),
    # A value and an index per triple travel, up and down.
    "lazy_mil": Case(
        best_of_each_triple,
        options=IN_BAGS,
        bags=True,
        required={"num_triples": NUM_TRIPLES},
        extra_traffic=NUM_TRIPLES * (4 + 4),
        effective_with={**GRANULARITY, "na_label": {"select_na": False}},
        without_effect=MORE_TRIPLES,
    ),
    # And the sentences of all winners: three features, label, triple and platform, and whether there is one.
    "lazy_mil_alias": Case(
        winners_at_every_client,
        options=IN_BAGS,
        bags=True,
        required={"num_triples": NUM_TRIPLES},
        extra_traffic=NUM_TRIPLES * (4 + 4 + 4 * (3 + 3) + 4),
        without_effect={
            **MORE_TRIPLES,
            **dict.fromkeys(("weighting", "granularity"), "all clients train on the same examples and send the same"),
        },
    ),
}


def case(name):
    """The entry of an algorithm, or an empty one."""
    return CASES.get(name, Case())
