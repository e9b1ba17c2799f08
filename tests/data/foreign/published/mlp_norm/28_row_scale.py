"""Rows divided by their root mean square, times a weight, with a running count beside."""

import torch

N_ROWS, N_COLUMNS = 64, 128


@torch.no_grad()
def reference(x: torch.Tensor, weight: torch.Tensor, counts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    rms = (wide.square().mean(-1, keepdim=True) + 1e-6).sqrt()
    counts += 1  # in place, as some references of such sets do
    return (wide / rms * weight.to(wide.dtype)).to(x.dtype), counts


def make_inputs() -> list:
    device = torch.device("cuda")
    x = torch.randn(N_ROWS, N_COLUMNS, device=device, dtype=torch.bfloat16)
    weight = 1 + torch.rand(N_COLUMNS, device=device)
    return [x, weight, torch.randint(0, 9, (N_ROWS,), device=device, dtype=torch.int32)]
