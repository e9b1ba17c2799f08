"""What tokens cost, by the user's own price file; a model that the file does not name has no price."""

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from runner import plain_yaml
from runner.errors import UserError
from runner.records import Usage

_Usd = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Price(BaseModel):
    """US dollars a million tokens; cached input costs as input where its own price is not given."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    input_usd: _Usd
    output_usd: _Usd
    cached_input_usd: _Usd | None = None
    batch_factor: _Usd = 1.0

    def cost_usd(self, usage: Usage, batch: bool = False) -> float | None:
        """What that usage costs, in US dollars; None where the server told no token counts."""
        if usage.n_input_tokens is None or usage.n_output_tokens is None:
            return None
        n_cached = usage.n_cached_tokens or 0
        cached_usd = self.input_usd if self.cached_input_usd is None else self.cached_input_usd
        total = (usage.n_input_tokens - n_cached) * self.input_usd + n_cached * cached_usd
        total += usage.n_output_tokens * self.output_usd
        return max(total, 0.0) / 1e6 * (self.batch_factor if batch else 1.0)


def load(path: str | Path) -> dict[str, Price]:
    """The prices of a YAML file: model name -> input_usd, output_usd, and optionally cached_input_usd, batch_factor.

    Raises:
        UserError: the file is missing, is no such mapping, or holds a price that is no number.
    """
    data = plain_yaml.load(path, "a price file; see docs/raters.md")
    if not isinstance(data, dict):
        raise UserError(f"{path}: a price file maps model names to input_usd and output_usd; see docs/raters.md")
    prices = {}
    for model, entry in data.items():
        try:
            prices[str(model)] = Price.model_validate(entry)
        except ValidationError as fault:
            first = fault.errors(include_url=False)[0]
            where = ".".join(str(p) for p in first["loc"]) or "entry"
            raise UserError(
                f"{path}: {model}: {where}: {first['msg']}; prices are US dollars a million tokens"
            ) from None
    return prices
