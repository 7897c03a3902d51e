"""The mixture's half of Algorithm 1 as the paper writes it: numpy, loops and responsibilities of all codes at once.

Laps, merges and births of section 3.3 and of the appendix, for diagonal components and codes that are one batch. Nothing is
shared with the package but the order in which chance is drawn; what it adds to the paper is in docs/departures.md.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from scipy.special import betaln, digamma, gammaln, softmax

ALPHA, KAPPA0, K_FRESH, N_STEPS, SHARE_COLLECTED, COOL_DOWN, MAX_PARTNERS = 5.0, 1e-4, 5, 10, 0.1, 0.05, 3


@dataclass(frozen=True)
class Atoms:
    """b_minNumAtomsForNewComp, b_minNumAtomsForTargetComp, b_minNumAtomsForRetainComp."""

    new: float
    target: float
    retained: float


class LiteralMixture:
    """Components as what they hold of codes z (n, D): a column of weights each, in the order of the sticks."""

    def __init__(self, dim, atoms, *, judged):
        self.nu0, self.b0 = dim + 2.0, 0.1 * dim  # E[variance] = sF = 0.1, Algorithm 1, line 1: K = 1
        self.atoms, self.judged = atoms, judged
        self.ids, self.next_id, self.newborn = [0], 1, set()
        self.z, self.held = np.zeros((0, dim)), np.zeros((0, 1))

    # --- the model

    def posterior(self, z, weights):
        n, kappa = weights.sum(), KAPPA0 + weights.sum()
        m = weights @ z / kappa
        return n, kappa, m, self.nu0 + n, self.b0 + weights @ z**2 - kappa * m**2

    def e_log_likelihood(self, z, given, weights):
        _, kappa, m, nu, b = self.posterior(given, weights)
        return 0.5 * (digamma(nu / 2) - np.log(b / 2) - np.log(2 * np.pi) - 1 / kappa - nu / b * (z - m) ** 2).sum(1)

    def scores(self, z, given, held):
        counts, passed, columns = held.sum(0), 0.0, []
        for k in range(held.shape[1]):
            won, lost = 1 + counts[k], ALPHA + counts[k + 1 :].sum()
            e_log_pi = passed + digamma(won) - digamma(won + lost)
            passed += digamma(lost) - digamma(won + lost)
            columns.append(e_log_pi + self.e_log_likelihood(z, given, held[:, k]))
        return np.stack(columns, axis=1)

    def log_evidence(self, z, weights):
        """Marginal likelihood M(S) of a component's weighted codes, constants of all codes aside."""
        _, kappa, _, nu, b = self.posterior(z, weights)
        of = gammaln(nu / 2) - nu / 2 * np.log(b / 2) - 0.5 * np.log(kappa)
        before = gammaln(self.nu0 / 2) - self.nu0 / 2 * np.log(self.b0 / 2) - 0.5 * np.log(KAPPA0)
        return (of - before).sum()

    def elbo(self, z, held):
        counts = held.sum(0)
        sticks = [betaln(1 + n, ALPHA + counts[k + 1 :].sum()) - betaln(1, ALPHA) for k, n in enumerate(counts)]
        return sum(self.log_evidence(z, column) for column in held.T) + sum(sticks) - x_log_x(held).sum()

    # --- Algorithm 1, lines 8 to 11

    def fit(self, z, n_laps, rng):
        rejected = {}
        for _ in range(n_laps):
            seed, counts = int(rng.integers(2**63)), self.held.sum(0)
            pairs = self.promising_pairs(rejected)
            targets = [
                component
                for component, n in zip(self.ids, counts, strict=True)
                if (counts.sum() == 0 or n > self.atoms.target) and not cools_down(rejected, component, n)
            ]
            if not self.judged and len(targets) > 1:
                chance = np.array([counts[self.ids.index(c)] for c in targets])
                targets = [targets[np.random.default_rng([seed, 0]).choice(len(targets), p=chance / chance.sum())]]
            # line 9; newborn components have been lent x', and keep what they win
            self.z, self.held = z, softmax(self.scores(z, self.z, self.held), axis=1)
            newborn, self.newborn, changed = sorted(self.newborn), set(), set()
            samples = {
                c: (self.held[:, self.ids.index(c)] > SHARE_COLLECTED) * self.held[:, self.ids.index(c)] for c in targets
            }
            # line 10
            for pair in pairs:
                self.try_merge(pair, rejected, changed)
            self.remove_small(newborn, changed)
            for component in targets:
                if component not in changed:
                    self.try_birth(component, samples[component], np.random.default_rng([seed, component]), rejected, changed)
            order = np.argsort(-self.held.sum(0), kind="stable")  # shuffle
            self.held, self.ids = self.held[:, order], [self.ids[k] for k in order]

    def promising_pairs(self, rejected):
        gains = {}
        for a, b in itertools.combinations(range(len(self.ids)), 2):
            joined = merged(self.held, a, b, to=a)
            gain = self.elbo(self.z, joined) + x_log_x(joined).sum() - self.elbo(self.z, self.held) - x_log_x(self.held).sum()
            if gain > 0 and self.log_ratio(a, b) > -3 * np.log1p(self.held.sum()):
                gains[self.ids[a], self.ids[b]] = gain
        n_pairs, chosen = dict.fromkeys(self.ids, 0), []
        for a, b in sorted(gains, key=gains.get, reverse=True):
            mass = self.held.sum(0)[[self.ids.index(a), self.ids.index(b)]].sum()
            if max(n_pairs[a], n_pairs[b]) < MAX_PARTNERS and not cools_down(rejected, frozenset((a, b)), mass):
                chosen.append((a, b))
                n_pairs[a] += 1
                n_pairs[b] += 1
        return chosen

    def log_ratio(self, a, b):
        """Log M(S_a + S_b) / (M(S_a) M(S_b))."""
        of_a, of_b = self.held[:, a], self.held[:, b]
        return self.log_evidence(self.z, of_a + of_b) - self.log_evidence(self.z, of_a) - self.log_evidence(self.z, of_b)

    def try_merge(self, pair, rejected, changed):
        if changed & set(pair):
            return
        a, b = sorted((self.ids.index(c) for c in pair), key=lambda k: -self.held[:, k].sum())
        mass = self.held[:, [a, b]].sum()
        joined = in_order(merged(self.held, a, b, to=a))
        if self.elbo(self.z, joined) > self.elbo(self.z, self.held):
            changed |= set(pair)
            self.join(a, b)
        else:
            rejected[frozenset(pair)] = mass

    def join(self, survivor, gone):
        self.held, names = merged(self.held, survivor, gone, to=survivor), [c for k, c in enumerate(self.ids) if k != gone]
        order = np.argsort(-self.held.sum(0), kind="stable")
        self.held, self.ids = self.held[:, order], [names[k] for k in order]

    def remove_small(self, newborn, changed):
        for component in newborn:
            if component in self.ids and len(self.ids) > 1:
                k = self.ids.index(component)
                if self.held[:, k].sum() < self.atoms.retained:
                    nearest = max((j for j in range(len(self.ids)) if j != k), key=lambda j: self.log_ratio(k, j))
                    changed |= {component, self.ids[nearest]}
                    self.join(nearest, k)

    def try_birth(self, component, weights, rng, rejected, changed):
        """Collection was the lap; creation: K' components on x', beside those that are there; adoption is the next lap."""
        mass = self.held[:, self.ids.index(component)].sum()
        rows = np.flatnonzero(weights)
        fresh = self.created(self.z[rows], weights[rows], mass, rng) if len(rows) > 1 else None
        if fresh is not None and self.judged and self.gain_on(self.z[rows], weights[rows], fresh) <= 0:
            fresh = None
        if fresh is None:
            if len(rows) > 1:
                rejected[component] = mass
            return
        lent = np.zeros((len(self.z), fresh.shape[1]))
        lent[rows] = fresh * weights[rows, None]
        names = list(range(self.next_id, self.next_id + fresh.shape[1]))
        self.held, self.ids, self.next_id = np.hstack([self.held, lent]), self.ids + names, self.next_id + len(names)
        order = np.argsort(-self.held.sum(0), kind="stable")
        self.held, self.ids = self.held[:, order], [self.ids[k] for k in order]
        self.newborn |= set(names)
        changed |= {component, *names}

    def created(self, x, weights, mass, rng):
        if mass <= self.atoms.target:
            return None
        centres = k_means_plus_plus(x, weights, rng)
        resp = np.eye(len(centres))[np.array([[((row - c) ** 2).sum() for c in centres] for row in x]).argmin(1)]
        counts = weights @ resp
        for _ in range(N_STEPS):
            resp = softmax(self.scores(x, x, resp * weights[:, None]), axis=1)
            before, counts = counts, weights @ resp
            if np.abs(counts - before).max() < 0.005 * weights.sum():
                break
        large = counts >= max(1.0, self.atoms.new * min(1.0, weights.sum() / mass))
        large[counts.argmax()] = True
        if large.sum() < 2:
            return None
        return softmax(self.scores(x, x, (resp * weights[:, None])[:, large]), axis=1)

    def gain_on(self, x, weights, resp):
        """Bound on x' under the fresh components, less that under one."""
        held = resp * weights[:, None]
        choice = -(weights[:, None] * x_log_x(resp)).sum()
        apart, together = (self.elbo(x, of) + x_log_x(of).sum() for of in (held, weights[:, None]))
        return apart + choice - together


def x_log_x(x):
    return x * np.log(np.maximum(x, 1e-300))


def cools_down(rejected, what, mass):
    return what in rejected and abs(mass - rejected[what]) <= COOL_DOWN * rejected[what]


def merged(held, a, b, *, to):
    joined = held.copy()
    joined[:, to] = held[:, a] + held[:, b]
    return np.delete(joined, b if to == a else a, axis=1)


def in_order(held):
    return held[:, np.argsort(-held.sum(0), kind="stable")]


def k_means_plus_plus(x, weights, rng):
    order = np.argsort(x @ np.cos(np.arange(x.shape[1])), kind="stable")
    x, weights = x[order], weights[order]
    centres, distance = [], np.ones(len(x))
    for u in rng.random(K_FRESH):
        ladder = np.cumsum(weights * distance)
        if ladder[-1] <= 0:
            break
        centres.append(x[min(np.searchsorted(ladder, u * ladder[-1], side="right"), len(x) - 1)])
        distance = np.array([min(((row - c) ** 2).sum() for c in centres) for row in x])
    return centres
