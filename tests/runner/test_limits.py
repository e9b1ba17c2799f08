"""Caps, pace and prices, without a network."""

import asyncio

import pytest

from runner.errors import UserError
from runner.limits import Budget, Estimate, Limits, Pace, Stopped, n_tokens_at_most
from runner.prices import Price, load
from runner.records import Usage


class Clock:
    """Time that passes only by sleeping."""

    def __init__(self):
        self.t = 100.0

    def now(self):
        return self.t

    async def sleep(self, seconds):
        self.t += max(seconds, 1e-9)


def starts(pace, clock, n_tokens):
    async def go():
        out = []
        for n in n_tokens:
            await pace.turn(n)
            out.append(clock.t)
        return out

    return asyncio.run(go())


def test_no_window_of_a_minute_holds_more_requests_than_allowed():
    clock = Clock()
    at = starts(Pace(30, None, clock.now, clock.sleep), clock, [1] * 100)
    assert all(b - a >= 60 - 1e-6 for a, b in zip(at, at[30:], strict=False)) and at[-1] - at[0] < 60 * 99 / 30 + 1


def test_tokens_of_a_minute_stay_within_the_limit_and_one_request():
    clock = Clock()
    sizes = [100, 900, 50, 400, 700] * 12
    at = starts(Pace(None, 1000, clock.now, clock.sleep), clock, sizes)
    for i, begin in enumerate(at):
        assert sum(n for t, n in zip(at[i:], sizes[i:], strict=True) if t < begin + 60) <= 1000 + max(sizes)


def test_tokens_that_were_not_used_are_given_back():
    clock = Clock()
    pace = Pace(None, 60, clock.now, clock.sleep)
    starts(pace, clock, [600])
    pace.correct(600, 6)
    assert starts(pace, clock, [1])[0] == pytest.approx(106.0)


def test_a_hold_stops_those_who_already_have_a_turn():
    clock = Clock()
    pace = Pace(60, None, clock.now, clock.sleep)

    async def go():
        await pace.turn(1)
        pace.hold(30)
        await pace.turn(1)

    asyncio.run(go())
    assert clock.t >= 130


def test_a_request_that_might_pass_a_cap_waits_for_those_under_way_and_then_stops():
    async def go():
        budget = Budget(Limits(max_tokens=100))
        most = Estimate(60)
        await budget.admit(most)
        second = asyncio.create_task(budget.admit(most))
        await asyncio.sleep(0.01)
        assert not second.done()
        budget.settle(most, Usage(n_input_tokens=20, n_output_tokens=5), None)
        await second
        budget.settle(most, Usage(n_input_tokens=50, n_output_tokens=5), None)
        with pytest.raises(Stopped, match="80 used"):
            await budget.admit(most)

    asyncio.run(go())


def test_a_released_reservation_counts_nothing():
    budget = Budget(Limits(max_requests=1))
    budget.admit_now(Estimate(5))
    budget.release(Estimate(5))
    assert budget.usage().n_requests == 0
    budget.admit_now(Estimate(5))
    with pytest.raises(Stopped):
        budget.admit_now(Estimate(5))


@pytest.mark.parametrize(
    "wrong", [{"max_usd": -1}, {"concurrency": 0}, {"max_tokens": float("inf")}, {"timeout_s": float("nan")}]
)
def test_impossible_limits_are_refused(wrong):
    with pytest.raises(UserError):
        Limits(**wrong)


def test_the_estimate_of_tokens_is_from_above_for_prose_code_and_chinese():
    # Words, marks and single Chinese characters are an upper count of tokens for vocabularies with whole words.
    assert n_tokens_at_most("The quick brown fox jumps over the lazy dog") >= 9
    assert n_tokens_at_most("张量核心") >= 8 and n_tokens_at_most("a = b[i] + c[j];") >= 9


def test_prices_are_read_and_a_batch_costs_its_factor(tmp_path):
    file = tmp_path / "prices.yaml"
    file.write_text("gpt-x:\n  input_usd: 2\n  output_usd: 8\n  batch_factor: 0.5\n")
    price = load(file)["gpt-x"]
    used = Usage(n_input_tokens=1_000_000, n_output_tokens=500_000)
    assert price.cost_usd(used) == 6.0 and price.cost_usd(used, batch=True) == 3.0
    assert price.cost_usd(Usage(n_requests=1)) is None
    assert (
        Price(input_usd=1, output_usd=1).cost_usd(Usage(n_input_tokens=10, n_output_tokens=0, n_cached_tokens=4))
        == 1e-5
    )


@pytest.mark.parametrize(
    "text",
    [
        "gpt-x: 3",
        "- a",
        "gpt-x: {input_usd: cheap, output_usd: 1}",
        "gpt-x: {input_usd: -1, output_usd: 1}",
        "a: [",
        "",
    ],
)
def test_a_price_file_that_is_none_is_one_line(tmp_path, text):
    file = tmp_path / "prices.yaml"
    file.write_text(text)
    with pytest.raises(UserError) as caught:
        load(file)
    assert "\n" not in str(caught.value) and "prices.yaml" in str(caught.value)
