"""Collapse of four parallel streams into one, each projected stream brought to the first one's magnitude, Gemma 3n, bf16.

inputs   streams  bf16 [4, n_tokens, n_in]
         w        bf16 [3, n_in, n_in]           projection of streams 1 to 3, [out, in]
outputs  out      bf16 [n_tokens, n_in]          mean of the four

    m = sqrt(mean(streams[0]^2))                 over each token's n_in values
    p_i = streams[i] . w[i - 1]^T                i = 1, 2, 3
    q_i = p_i * m / sqrt(max(mean(p_i^2), 1e-5))
    out = (streams[0] + q_1 + q_2 + q_3) / 4
Sums and elementwise mathematics are float32, p_i is not rounded. A token whose projection is zero adds zero.
"""

from problems import precision

SOURCE = "Gemma 3n E2B: hidden_size 2048, altup_num_inputs 4, magnitudes bounded below by 1e-5; 8192 tokens"
SIZES = {"full": {"n_tokens": 8192, "n_in": 2048}, "small": {"n_tokens": 16, "n_in": 1024}}
N_STREAMS, LEAST = 4, 1e-5
OUTPUTS = ("bf16",)
INVARIANT = "shapes, types, the number of streams and the bound"


def make_inputs(xp, rng, size="full"):
    s, bf16 = SIZES[size], precision.TYPES["bf16"]
    n_in = s["n_in"]

    def normal(*shape, mean=0.0, std=1.0):
        return rng.standard_normal(shape, dtype=xp.float32) * xp.float32(std) + xp.float32(mean)

    # Tokens lean to one direction of random signs, and projections answer to it: sums outgrow their terms.
    lean = xp.where(rng.random(n_in, dtype=xp.float32) < 0.5, -1, 1).astype(xp.float32)
    streams = normal(N_STREAMS, s["n_tokens"], n_in) + normal(N_STREAMS, s["n_tokens"], 1, mean=1, std=0.5) * lean
    w = (normal(N_STREAMS - 1, n_in, n_in) + normal(N_STREAMS - 1, n_in, 1) * lean) * xp.float32(n_in ** -0.5)
    return streams.astype(bf16), w.astype(bf16)


def reference(xp, streams, w):
    n_in = streams.shape[-1]
    first = precision.wide(streams[0])
    magnitude = xp.sqrt(precision.total(xp, first * first) / n_in)
    p = precision.matmul(xp, streams[1:], w.transpose(0, 2, 1))
    own = xp.sqrt(xp.maximum(precision.total(xp, p * p) / n_in, LEAST))
    q = p * magnitude / own
    return precision.narrow((first + q[0] + q[1] + q[2]) / N_STREAMS, "bf16")


def work(size="full"):
    s = SIZES[size]
    n_values = (N_STREAMS + 1) * s["n_tokens"] * s["n_in"] + (N_STREAMS - 1) * s["n_in"] ** 2
    return {"n_bytes": 2 * n_values, "n_operations": 2 * (N_STREAMS - 1) * s["n_tokens"] * s["n_in"] ** 2, "unit": "bf16"}
