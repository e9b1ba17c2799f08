"""The wordings that the embedded rater knows: what a word, a pair of words or a Chinese phrase hints at."""

# cue -> pattern of a whole word
WORDS = {
    "untested": r"untested",
    "future": r"future|later|idea|plan(?:ned)?|remaining",
    "may": r"may|might|could|perhaps|maybe|possibly|probably|likely|unclear",
    "question": r"whether",
    "if": r"if|when(?:ever)?|unless|should",
    "fail": r"fail(?:s|ed|ure|ures|ing)?|broke[n]?|breaks?|crash\w*|errors?|dies?|died|wrong|nan|"
    r"deadlock\w*|hang(?:s|ed)?|assert\w*|rejected|unsupported|illegal|won['’]t|"
    r"doesn['’]t|timeout|segfault|killed|misaligned",
    "revert": r"revert\w*|dropped?|abandon\w*|discard\w*|undid|buried|ditched|scrapped",
    "slower": r"slow(?:er|s|ed|est|down)?|regress\w*|worse|loses?|lost|hurts?|behind|flat|nothing",
    "tried": r"tried|attempt\w*|experiment\w*|testing|trial|trying",
    "because": r"because|since|hence|so|therefore|thus|reason|caus\w+",
    "spill": r"spill\w*|exceed\w*|over(?:flow|run)\w*|limit",
    "faster": r"fast(?:er|est)|quick(?:er|est)|gain(?:s|ed)?|wins?|won|saves?|saved|ahead|improv\w+|"
    r"beats?|worth|best|speed-?ups?",
    "went": r"fell|rose|got|reach\w*|lands?",
    "profile": r"profil\w+|ncu|nsight|nsys|trace[sd]?|counters?|occupancy|stall\w*|throughput|"
    r"bandwidth|latency|bottleneck|runtime|bound|utili[sz]ation|peak|roofline|dominat\w+|"
    r"limit(?:s|ed|er)",
    "took": r"takes?|took|spends?|eats?|measured|timed|median|mean|average|geomean",
    "versus": r"vs\.?|versus|against|compared|baseline|than|over",
    "check": r"check\w*|verif\w+|validat\w+|confirm\w*|compare|reproduc\w+|test(?:s|ed)?|sanity|"
    r"reference|oracle|assert|probe|ablat\w+|bisect|diff",
    "pass": r"pass(?:es|ed|ing)?|match(?:es|ed)?|identical|agrees?|correct|exact(?:ly)?|"
    r"equivalen\w+|bit-?(?:exact|wise|identical)",
    "measure_how": r"warmed|iterations?|repeats?|events?|seed\w*|manual_seed|sync\w*|cold|flush|sweep|"
    r"grep|log|dump|warm-?up\w*",
    "order": r"first|then|before|after|finally|step|once|always",
    "rewrite": r"rewr\w+|reformulat\w+|replac\w+|fold(?:s|ed|ing)?|algebra\w*|identity|"
    r"factor(?:ed|ing)?|chunk(?:ed|wise)|associativ\w+|equals|deriv\w+|now",
    "mapping": r"threads?|warps?|ctas?|blocks?|lanes?|til(?:e|es|ed|ing)|shared|smem|lds|registers?|"
    r"regs?|tma|mma|wgmma|mfma|pipelin\w+|stag(?:e|es|ed|ing)|swizzl\w+|coalesc\w+|"
    r"vectori[sz]\w+|cluster\w*|multicast|persistent|fus(?:e|es|ed|ing|ion)|barrier\w*|"
    r"prefetch\w*|l2|unroll\w*|bank|loads?|stores?|grid|epilogue|cache|layout|split-?k|"
    r"stream-?k",
    "numerics": r"fp32|fp16|bf16|fp8|tf32|fp64|float32|precision|accumul\w+|round(?:s|ed|ing)?|"
    r"toleran\w+|atol|rtol|ulp|overflow\w*|underflow\w*|cosine|denormal\w*|mantissa|"
    r"stable|drift\w*",
    "library": r"cublas\w*|cudnn|torch|pytorch|eager|inductor|cutlass|flashinfer|library|framework|"
    r"hipblas\w*|native|aten|cub|thrust|built-?in",
    "keep": r"keep(?:s|ing)?|kept|leave|left|stay(?:s|ed)?|stick|move[sd]?|delegate|ship\w*|"
    r"merge[sd]?|adopt\w*",
    "census": r"shapes?|dtypes?|inputs?|outputs?|tensors?|heads?|dim(?:s|ension|ensions)?|axis|axes|"
    r"batch|seq(?:len|uence)?|contiguous|flops?|gflops?|bytes?|weights?|activations?|"
    r"intensity|hidden|vocab|tokens?|channels?|layers?|mask",
    "consists": r"consist\w*|contains?|has|have",
    "superlative": r"best|optimal|ideal|perfect\w*|most|biggest|key|crucial|critical|right|maxim\w+|free|"
    r"negligible|handily",
    "always": r"always|any|all|every|general(?:ly|izes)?|usually|typically|tends?|scales?",
    "must": r"must|needs?|needed|require\w*|necessary|essential|mandatory|only|cannot",
    "never": r"never|pointless|avoid|forget|impossible|useless|exhausted|hopeless|waste|don['’]t|"
    r"can['’]t|cannot|won['’]t|nobody",
    "not": r"not|no|none|nor|neither|without|\w+n['’]t|cannot|never",
    "effect": r"helps?|benefit\w*|improv\w+|makes?|allows?|enabl\w+|hid(?:e|es|ing)|overlap\w*|"
    r"remov\w+|eliminat\w+|avoid(?:s|ing)|reduc\w+|increas\w+|boost\w*",
    "narrative": r"commit|see|files?|verdict|status|note(?:s)?|readme|summary|tl;dr|session|agent|"
    r"story|page|docs?|rules?|forbidden|allowed|suite|scor(?:e|ing)|leaderboard",
    "we": r"we|our|ours|i|us",
    "you": r"you|your",
    "past": r"was|were|had|\w{3,}ed",
    "is": r"is|are|it['’]s",
    "dsl": r"triton|tilelang|cute(?:dsl)?|cutlass|tirx?|cuda|ptx|mojo|hip|rocm|pallas|"
    r"thunderkittens|dsl|compiler|jit|decorator|pragma|intrinsic\w*|constexpr|template|"
    r"lower(?:s|ed|ing)",
}

# cue -> pairs of neighbouring words
PAIRS = {
    "untested": r"not tried|not yet|not tested|not measured|not done|not explored|not looked|"
    r"not begun|never tried|never tested|yet to|haven’t tried|haven't tried|have not|"
    r"left undone|to try|to do",
    "future": r"next step|next up|up next|would be|would like|worth a|worth trying|worth exploring|"
    r"to explore|could try|try next|try out|next week|ideas left|what if|how about",
    "may": r"no idea|would give|may be|not sure|not clear",
    "fail": r"not work|not compile|not build|not launch|not fit|no longer|times out|blew up|"
    r"blows up|goes wrong|went wrong|wrong results|wrong numbers",
    "revert": r"backed out|thrown out|rolled back|gave up|gave it|given up|taken out",
    "slower": r"cost us|costs us|no gain|no win|no faster|no quicker|no better|no difference|"
    r"changed nothing|makes no",
    "tried": r"we went|tried and|went at|tried to",
    "because": r"due to|as a|that is|which is|so that",
    "spill": r"register pressure|out of|too many|too big|too large|too few|too small|not enough|"
    r"no room|run out|registers run",
    "went": r"went up|went down|went from|down to|down from|up from|came out|up by|dropped to|"
    r"dropped from",
    "took": r"runs at|run at|runs in|on average|spends its|its time",
    "check": r"ground truth|control run|sanity check|against the",
    "pass": r"max diff|same result|same results|same output|same answer|all cases|in all|no error",
    "measure_how": r"look for|look at|run it|run the|run each|run one|warm up|throw away|same seed|"
    r"take the",
    "rewrite": r"instead of|closed form|online softmax|running max|in place",
    "mapping": r"tensor core|tensor cores|thread block",
    "per": r"per thread|per warp|per cta|per block|per row|per head|per lane|per tile|per token|"
    r"per sm|each thread|each warp|each cta|each block|each lane|each row|each tile|"
    r"one thread|one warp|one cta|one block|one lane|one row|one tile|a thread|a warp|"
    r"a cta|a lane|every warp|every thread|every cta",
    "numerics": r"relative error|absolute error|abs error|max error|worst error|error norms|"
    r"error norm|of rounding",
    "keep": r"handed to|hand over|handed back|fall back|falls back|not worth|worth moving|left to|"
    r"stays with|stay with|leave it|leave the|kept in|stays in",
    "consists": r"there is|there are|arrives as|arrive as|comes in|comes as|is stored|are stored|"
    r"sits in|sit in|made of",
    "superlative": r"sweet spot|just right|the most|the best|as fast|real lever",
    "always": r"as a|in general|in practice|all shapes|all sizes|every shape|works well|"
    r"carries over|scales to",
    "must": r"only way|has to|have to|a must|only one|only choice",
    "never": r"no point|do not|nothing more|nothing left|nothing else|nothing to|no room|not worth|"
    r"no use|dead end|no sense|makes no|no hope|no way|stay away|ruled out|not an|"
    r"lost cause|no need|done with|leave it",
    "narrative": r"this page|this file|this note|the rules|next to",
}

# cue -> Chinese phrases
HAN = {
    "untested": r"没(?:有)?(?:试|测|做)|尚未|未测|还没|待(?:测|验证|试)",
    "future": r"下一步|以后|计划|打算|待做|再看",
    "may": r"可能|也许|大概|或许|应该能",
    "question": r"是否|能不能",
    "if": r"如果|若|要是",
    "fail": r"失败|报错|崩|死锁|不通过|编译不过|出错|错误|搭歪|搞错|放不下|超时",
    "revert": r"回退|放弃|撤回|扔掉",
    "slower": r"变慢|更慢|慢了|反而|没有收益",
    "tried": r"试过|试了|尝试",
    "because": r"因为|所以|由于|因此|导致",
    "spill": r"溢出|超出|不够",
    "faster": r"快了|更快|提速|加速|省下|省了",
    "went": r"降到|升到|从.{1,15}到",
    "profile": r"占|瓶颈|带宽|延迟|吞吐|耗时|用时",
    "took": r"实测|测得|平均|中位",
    "versus": r"相比|对比|比",
    "check": r"检查|验证|对拍|核对|确认",
    "pass": r"通过|一致|正确|逐位|等价",
    "measure_how": r"预热|重复|先跑|同步",
    "order": r"先|再|然后|之前|之后",
    "rewrite": r"改写|替换|等价|重写|改成",
    "mapping": r"线程|寄存器|共享内存|融合|流水|同步|向量化|合并访存|切分|块",
    "per": r"每个?|一个",
    "numerics": r"精度|误差|舍入|累加|容差",
    "library": r"库",
    "keep": r"保留|交给|留在|不值得",
    "census": r"形状|输入|输出|维度|权重|头",
    "consists": r"共有|包含|由",
    "superlative": r"最好|最佳|最优|最|关键|免费|优势|值钱",
    "always": r"总是|任何|所有|一般|通常",
    "must": r"必须|只能|唯一|一定|要么",
    "never": r"不要|别|没必要|没有意义|不可能|不值得|没用|到头|到顶|死路|走不通",
    "not": r"不|没|无",
    "effect": r"提升|减少|隐藏|有利",
    "narrative": r"见|参见|提交|文档",
    "we": r"我们|我",
    "you": r"你",
    "past": r"了",
    "is": r"是",
    "dsl": r"编译器",
}
