"""The chapter's claims in our own words, in the order of its sections.

Bounds and margins stand here before anything is measured. C56 and C57 are this project's own.
"""

from __future__ import annotations

from reports.claim import Claim

CLAIM_LIST = (
    Claim(
        "C01", "A", ("math",),
        "One token of context costs 2 x layers x KV heads x head_dim x bytes of KV cache.",
        "114,688 B = 112 KiB for Qwen3-0.6B in fp16, exactly",
    ),
    Claim(
        "C02", "A", ("math",),
        "Counting the 16 attention heads instead of the 8 KV heads doubles that cost.",
        "224 KiB is what the mistake gives, and it is rejected",
    ),
    Claim(
        "C03", "A", ("math",),
        "A single sequence at full context holds several times the bytes of the weights.",
        "4,697,620,480 B, 3.9406 x the weights",
    ),
    Claim(
        "C04", "A", ("math",),
        "With 16 sequences a 16 GB card is full long before the context is.",
        "16 GB reached at 8,069.67 tokens per sequence",
    ),
    Claim(
        "C05", "A", ("model",),
        "The cache that a loaded model really allocates has exactly the predicted bytes.",
        "bytes of the cache tensors = formula",
    ),
    Claim(
        "C06", "A", ("timed",),
        "Activations are negligible when serving.",
        "decode: peak - weights - KV at most 5 % of the weights",
        "cuda",
        "In prefill it holds only when logits are kept for the last position alone: 2,048 rows of "
        "logits weigh half of Qwen3-0.6B.",
    ),
    Claim(
        "C07", "A", ("math", "serve"),
        "The KV budget has room for about 125 sequences of 1,024 tokens, so memory is not what "
        "limits serving.",
        "126.1 sequences; under load, KV in use below half the budget at the highest goodput",
        note="The chapter rounds to 125.",
    ),
    Claim(
        "C08", "B", ("math",),
        "Decode cannot emit tokens faster than bandwidth / bytes read per step.",
        "T4: 268.43 tok/s at context 0, 266 at 95 tokens, 255.8 at 512",
        note="The chapter's 266 comes from rounding the weights up to 1.2 GB.",
    ),
    Claim(
        "C09", "B", ("math", "timed"),
        "At that ceiling the arithmetic units idle.",
        "0.3171 TFLOP/s, 0.488 % of a T4's 65; measured MFU at batch 1 beside it",
    ),
    Claim(
        "C10", "B", ("timed",),
        "Measured batch-1 decode stays below the ceiling, whatever the engine.",
        "each engine below datasheet bandwidth / its own bytes",
        note="Above the datasheet ceiling the measurement is at fault; above measured read "
        "bandwidth is a warning. Speculative decoding is outside the claim.",
    ),
    Claim(
        "C11", "B", ("timed",),
        "The naive engine runs about ten times under its ceiling.",
        "ceiling / measured in [5, 20]",
        "sm_75",
    ),
    Claim(
        "C12", "B", ("timed",),
        "Each rung of the ladder comes closer to its own ceiling than the rung before.",
        "ratio of neighbouring ceiling shares > 1, interleaved",
        "cuda",
    ),
    Claim(
        "C13", "B", ("timed",),
        "A step's time grows with the KV bytes it reads.",
        "measured slope over predicted slope in [1, 3]",
        "cuda",
        "Not applicable where the range of cache lengths adds less than half a step.",
    ),
    Claim(
        "C53", "B", ("timed",),
        "The gap to the ceiling has names: Python per token, tens of launches per step, a growing "
        "cache, a host synchronization per token.",
        "each rung removes the cause it names; launches, syncs, allocations and idle share counted",
        "cuda",
        "\"Tens\" is itself tested: a 28-layer step launches many hundreds of operations.",
    ),
    Claim(
        "C54", "B", ("timed",),
        "A growing cache changes shape at every token and cannot be compiled once; a static one "
        "can.",
        "per 64 tokens: dynamic > 0 recompiles or marked dynamic, static 0 after warm-up",
    ),
    Claim(
        "C14", "C", ("math",),
        "Requests in the system = arrival rate x time in the system, whatever the distributions.",
        "5/s x 2 s = 10; simulated queues, L counted by an independent observer",
    ),
    Claim(
        "C15", "C", ("math",),
        "Those ten requests of 1,024 tokens hold a little over a gigabyte of KV.",
        "1.1744 GB",
    ),
    Claim(
        "C16", "C", ("math",),
        "The tail leaves long before the server is full.",
        "M/M/1, service 0.5 s, utilisation 0.8: p99 = 11.51 s; at 1 or more: unstable, no number",
        note="The service time of 0.5 s is inferred from the chapter's 11 s.",
    ),
    Claim(
        "C17", "C", ("serve",),
        "Little's law holds in a measured load test.",
        "L (server gauge) / (rate of the schedule x time seen by the client) in [0.95, 1.05]",
    ),
    Claim(
        "C18", "C", ("serve",),
        "p99 rises steeply before capacity is reached, so headroom is needed.",
        "p99 at 0.8 >= 3 x p99 at 0.1 while achieved = offered +- 2 %; at 1.1 the backlog grows",
    ),
    Claim(
        "C19", "D", ("math",),
        "Symmetric int8 with one scale per group errs by at most half a step per value.",
        "error <= scale / 2, for every input",
    ),
    Claim(
        "C20", "D", ("math",),
        "Half the bytes would double the ceiling.",
        "idealised 2.00 (int8), 3.56 (4.5 bits); as bitsandbytes loads it 1.58 and 2.13",
        note="The tied head stays fp16 and scales are read too.",
    ),
    Claim(
        "C21", "D", ("timed",),
        "bitsandbytes int8 decodes slower than fp16, because outliers are split off.",
        "int8 / fp16 < 1, both eager, interleaved; threshold 6 against 0 isolates the split",
        "sm_75",
    ),
    Claim(
        "C22", "D", ("timed",),
        "nf4 decodes faster than int8 at batch 1.",
        "nf4 / int8 (threshold 6) > 1, interleaved",
        "cuda",
        "Batch 8 and threshold 0 are recorded beside it.",
    ),
    Claim(
        "C23", "D", ("model",),
        "nf4 weights are smaller than int8 weights, which are smaller than fp16 weights.",
        "loaded bytes; on CUDA also allocated",
    ),
    Claim(
        "C24", "D", ("model",),
        "nf4 and int8 answer about as well as fp16.",
        "accuracy loss <= 5 points, perplexity ratio <= 1.20, mean KL <= 0.10 nat per token",
        "trained",
        "Paired per item, exact McNemar beside. Where fp16 is not above chance, accuracy is not "
        "informative and KL and perplexity decide.",
    ),
    Claim(
        "C25", "D", ("model",),
        "bitsandbytes leaves the KV cache alone.",
        "still 112 KiB per token for Qwen3-0.6B",
    ),
    Claim(
        "C26", "D", ("model",),
        "No speed stands without its quality in the same row.",
        "the quality cell holds a value, 'tokens equal', or a stated reason; empty is an error",
    ),
    Claim(
        "C56", "D", ("timed",),
        "Half the bytes do speed decode up when the kernel does not eat the gain.",
        "fused weight-only int8 / fused fp16 >= 1.5 on the 8B shape at batch 1",
        "cuda",
        "This project's own counterpart of C21.",
    ),
    Claim(
        "C57", "D", ("timed",),
        "The fused engine spends at most a stated time per layer over the floor, on any GPU.",
        "(step - bytes / measured read bandwidth) / layers at most 15 microseconds",
        "cuda",
        "This project's own; the figure that travels between GPUs.",
    ),
    Claim(
        "C27", "E", ("math",),
        "Decode does about one FLOP per byte where a T4 needs about 200.",
        "ridge point 65e12 / 320e9 = 203.1",
    ),
    Claim(
        "C28", "E", ("math",),
        "A prefill of s tokens does about s FLOP per byte and is bound by compute from about 200.",
        "crossing at ~204 tokens with logits for each, ~275 with the last only",
    ),
    Claim(
        "C29", "E", ("timed",),
        "The two phases are different worlds: prefill in thousands of tok/s, decode in tens to "
        "hundreds.",
        "prompt >= 1,024: prefill rate / decode rate >= 10; T4: prefill > 1,000, decode 10-999",
        "cuda",
        "On a fast GPU launch time hides the knee of TTFT against prompt length.",
    ),
    Claim(
        "C30", "E", ("model",),
        "One tok/s averaged over both phases misleads.",
        "prompts 32 and 2,048: the average moves by more than 2 x, ITL by less than 20 % beyond "
        "the KV bytes",
    ),
    Claim(
        "C31", "F", ("math",),
        "Batching raises throughput and each user's latency together.",
        "T4 at 512 tokens: B=1 256 tok/s, 3.9 ms; B=16 2,402, 6.7 ms; B=32 3,334, 9.6 ms",
    ),
    Claim(
        "C32", "F", ("timed",),
        "Measured throughput rises with the batch, and so does each user's latency.",
        "each doubling > 1.1 x aggregate until the ridge; ITL >= 0.95 x",
    ),
    Claim(
        "C33", "F", ("model",),
        "A figure without its batch size says nothing.",
        "every record carries @B; one without is rejected",
        note="27 tok/s@1 and 400 tok/s@32 can be one machine.",
    ),
    Claim(
        "C34", "F", ("model",),
        "Continuous batching returns what each request would get alone.",
        "fp32: greedy tokens equal; fp16: every mismatch within the format's error of a tie",
    ),
    Claim(
        "C35", "F", ("timed",),
        "Continuous batching multiplies aggregate throughput.",
        "B=16 / sequential >= 5 on CUDA; one forward per step for all rows",
        "cuda",
    ),
    Claim(
        "C36", "F", ("timed",),
        "Continuous batching wastes fewer slots than static batching.",
        "mixed lengths: slot utilisation ratio > 1 and makespan ratio < 1",
    ),
    Claim(
        "C37", "F", ("serve",),
        "Continuous batching hardly speeds up any one request, and high load worsens its tail.",
        "per-request rate <= 1.05 x sequential; p99 ITL at 0.8 load > at 0.1",
    ),
    Claim(
        "C38", "G", ("math",),
        "Merging an adapter is W' = W + (alpha / r) B A.",
        "exact in float64; alpha / sqrt(r) for rsLoRA",
    ),
    Claim(
        "C39", "G", ("model",),
        "Merged and unmerged adapters give the same logits up to rounding, but not exactly.",
        "0 < max abs difference < 1e-2 in fp16",
        note="The unmerged logits must be computed before merging in place, or a model is compared "
        "with itself. Where one fp16 ulp exceeds the bound, the fp32 comparison decides.",
    ),
    Claim(
        "C40", "G", ("timed",),
        "Merging removes what the adapter costs.",
        "merged / base in [0.97, 1.03], unmerged / base > 1 in time, interleaved",
        "cuda",
    ),
    Claim(
        "C41", "G", ("math",),
        "A rank-16 adapter on all linear layers is small, and merging costs its size 60-fold.",
        "10,092,544 parameters, 20.19 MB, 59.06 x",
    ),
    Claim(
        "C55", "G", ("model",),
        "The exported folder is an ordinary model.",
        "reloads with identical logits and tokenizer, no adapter keys, predicted size",
    ),
    Claim(
        "C42", "H", ("static",),
        "A T4 has no native bf16, although torch says it is supported.",
        "native = capability >= 8.0; (7, 5) is not",
        "cuda",
        "torch counts emulation as support.",
    ),
    Claim(
        "C43", "H", ("static",),
        "For sm_75 the choice is fp16, SDPA and vLLM's dtype half.",
        "decided from the capability, with faked devices",
    ),
    Claim(
        "C44", "I", ("serve",),
        "A load fired on schedule shows a tail that a closed loop hides.",
        "open / closed p99 >= 1.5 at the same mean rate, from the scheduled time",
    ),
    Claim(
        "C45", "I", ("math", "serve"),
        "The schedule is Poisson: seeded exponential gaps, summed, never rescaled.",
        "sent times: exponential fit, CV, lag-1, dispersion; one family at 1 %",
    ),
    Claim(
        "C46", "I", ("serve",),
        "The naive server does not scale.",
        "throughput at 16 clients / at 1 <= 1.5",
        note="As printed its handler runs in a thread pool that admits 40 calls at once; a locked "
        "variant is measured beside it.",
    ),
    Claim(
        "C47", "I", ("timed",),
        "A static cache and compilation help batch 1 most.",
        "speed-up at B=1 / speed-up at B=16 > 1",
        "cuda",
    ),
    Claim(
        "C48", "I", ("timed",),
        "Timing without warm-up turns the conclusion around.",
        "compiled / naive < 1 with compilation inside the timer, > 1 without",
        "cuda",
    ),
    Claim(
        "C49", "I", ("static",),
        "Where vLLM is missing or fails at start, every other result is complete.",
        "import and start errors simulated: the run records why and goes on",
    ),
    Claim(
        "C50", "I", ("serve",),
        "Where vLLM runs, it beats the hand-written scheduler at high concurrency.",
        "vLLM / continuous > 1, or the reason is eager mode",
        "cuda",
    ),
    Claim(
        "C51", "I", ("model",),
        "Each measurement is on disk the moment it ends.",
        "kill -9 loses at most the test in flight",
    ),
    Claim(
        "C52", "I", ("model",),
        "fp16 and nf4 answers to one prompt can be compared by eye.",
        "greedy answers side by side in the report",
        "trained",
    ),
)  # fmt: skip
