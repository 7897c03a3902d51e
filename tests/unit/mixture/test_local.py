import pytest
import torch

from diva.mixture import local
from diva.mixture.gaussian import make_family
from diva.mixture.local import MEMBER_ABOVE, Observer, summarize, visit
from diva.mixture.state import MixtureState

from ...properties.helpers import MemoryBlock, assert_close

BOTH = pytest.mark.parametrize("covariance_type", ["diag", "full"])


def codes(n=600, dim=2, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(n, dim, dtype=torch.float64, generator=generator).to(dtype)


def state_of(covariance_type, z, n_components=3):
    zeros = torch.zeros(z.shape[1], dtype=torch.float64)
    family = make_family(covariance_type, zeros, zeros + 0.1)
    resp = torch.softmax(4 * codes(len(z), n_components), dim=1)
    total = summarize(family, z, resp)
    ids = tuple(range(n_components))
    return MixtureState(family, 1.0, family.empty(n_components), (total,), total, ids, n_components)


@BOTH
@pytest.mark.parametrize("weighted", [True, False])
def test_chunks_do_not_matter(monkeypatch, covariance_type, weighted):
    z = codes()
    posterior = state_of(covariance_type, z).posterior
    block = MemoryBlock(z, torch.rand(600, dtype=torch.float64) if weighted else None)
    whole = visit(posterior, block)
    monkeypatch.setattr(local, "CHUNK_NUMBERS", 1)
    assert posterior.chunk_rows() == 16
    assert_close(visit(posterior, block), whole)


def test_observers_see_every_row_once(monkeypatch):
    monkeypatch.setattr(local, "CHUNK_NUMBERS", 1)
    z, seen = codes(), []

    class Watcher(Observer):
        def observe(self, step):
            seen.append(step.features[:, :2])
            return ()

    visit(state_of("full", z).posterior, MemoryBlock(z), [Watcher()])
    assert [len(part) for part in seen] == [16] * 37 + [8]
    assert torch.equal(torch.cat(seen), z)


@BOTH
def test_float32_codes_leave_float64_statistics(covariance_type):
    z = codes(dtype=torch.float32)
    posterior = state_of(covariance_type, z).posterior
    assert not posterior.precise
    single = visit(posterior, MemoryBlock(z))
    assert all(t.dtype == torch.float64 for t in single.fields())
    assert_close(single, visit(posterior, MemoryBlock(z.double())), rtol=1e-5)


def test_a_precise_posterior_computes_in_float64():
    z = torch.cat([3.0 + 1e-3 * codes(100), -3.0 + codes(100)]).float()
    family = make_family("full", torch.zeros(2).double(), torch.full((2,), 1e-6).double())
    total = summarize(family, z, torch.eye(2).repeat_interleave(100, 0))
    posterior = MixtureState(family, 1.0, family.empty(2), (total,), total, (0, 1), 2).posterior
    assert posterior.precise
    assert posterior.responsibilities(z).dtype == torch.float64
    assert_close(visit(posterior, MemoryBlock(z)), visit(posterior, MemoryBlock(z.double())), rtol=1e-12)


def test_responsibilities_sum_to_one_even_where_densities_vanish():
    far = torch.tensor([[1e7, 1e7], [-1e7, 0.0], [0.0, 0.0]], dtype=torch.float64)
    resp = state_of("full", codes()).posterior.responsibilities(far)
    torch.testing.assert_close(resp.sum(1), torch.ones(3, dtype=torch.float64))


def test_members_are_the_rows_a_component_holds():
    step = state_of("diag", codes()).posterior.local_step(codes())
    for k, rows in enumerate(step.members):
        assert rows.tolist() == torch.nonzero(step.resp[:, k] > MEMBER_ABOVE).squeeze(1).tolist()


def test_hard_responsibilities_have_no_entropy():
    family = make_family("diag", torch.zeros(2).double(), torch.ones(2).double())
    hard = torch.eye(3).repeat(4, 1)
    assert torch.equal(summarize(family, codes(12), hard).entropy, torch.zeros(3, dtype=torch.float64))
