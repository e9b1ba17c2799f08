"""What the orders still due will cost: from what the study's own attempts used, or a rough guess before any."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from runner.agent_prompts import SYSTEM, TOOLS, contract_text
from runner.catalogue import Problem
from runner.limits import n_tokens_at_most
from runner.plan import Order
from runner.prices import Price
from runner.records import Attempt, Usage

# A guess for an attempt that nobody has seen: a reply a submission and a few more, each about this long.
N_OTHER_REPLIES = 6
REPLY_TOKENS = 3_000
ANSWER_TOKENS = 800


@dataclass(frozen=True)
class Cost:
    """Tokens and US dollars (None where no price is known) for some orders, and what the figure rests on."""

    n_orders: int
    n_input_tokens: int
    n_cached_tokens: int
    n_output_tokens: int
    usd: float | None
    basis: str

    def text(self) -> str:
        money = "no price known (--prices FILE)" if self.usd is None else f"about ${self.usd:.2f}"
        return (
            f"{self.n_orders} attempts due: {self.n_input_tokens:,} tokens in ({self.n_cached_tokens:,} cached), "
            f"{self.n_output_tokens:,} out, {money}; {self.basis}"
        )


def estimate(
    due: Sequence[Order],
    attempts: Iterable[Attempt],
    problems: Sequence[Problem],
    price: Price | None,
    max_submissions: int,
    n_distillations: int,
) -> Cost:
    """The cost of the orders due; measured means are taken by arm, and over both arms where one has no attempt yet."""
    model = due[0].model if due else None
    seen = [a for a in attempts if a.model == model and a.usage and a.usage.n_input_tokens is not None]
    if not due:
        return Cost(0, 0, 0, 0, 0.0, "nothing is due")
    if seen:
        usages = []
        for order in due:
            alike = [a.usage for a in seen if a.arm is order.arm] or [a.usage for a in seen]
            usages.append(_mean(alike))
        basis = f"from the means of {len(seen)} attempts of this study"
    else:
        usages = [_guess(o, problems, max_submissions, n_distillations) for o in due]
        basis = "a rough guess from the prompts and the budget: no attempt of this model is measured yet"
    n_in, n_cached, n_out = (
        round(sum(getattr(u, name) or 0 for u in usages))
        for name in ("n_input_tokens", "n_cached_tokens", "n_output_tokens")
    )
    total = Usage(n_input_tokens=n_in, n_cached_tokens=n_cached, n_output_tokens=n_out)
    return Cost(len(due), n_in, n_cached, n_out, price.cost_usd(total) if price else None, basis)


def _mean(usages: Sequence[Usage]) -> Usage:
    def mean(name: str) -> int:
        return round(sum(getattr(u, name) or 0 for u in usages) / len(usages))

    names = ("n_input_tokens", "n_cached_tokens", "n_output_tokens")
    return Usage(**{name: mean(name) for name in names})


def _guess(order: Order, problems: Sequence[Problem], max_submissions: int, n_distillations: int) -> Usage:
    problem = next(p for p in problems if p.number == order.problem)
    told = SYSTEM + problem.statement() + contract_text(problem, order.dsl, "cuda", "full")
    start = n_tokens_at_most(told + "".join(str(t.plain()) for t in TOOLS))
    n_replies = max_submissions + N_OTHER_REPLIES
    grown = REPLY_TOKENS + ANSWER_TOKENS
    # Every reply reads the whole conversation again; what it read before comes from the server's cache.
    n_in = n_replies * start + grown * n_replies * (n_replies - 1) // 2
    n_in += n_distillations * (start + n_replies * REPLY_TOKENS)
    n_out = (n_replies + n_distillations) * REPLY_TOKENS
    return Usage(n_input_tokens=n_in, n_cached_tokens=0, n_output_tokens=n_out)
