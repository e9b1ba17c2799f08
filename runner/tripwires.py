"""Static tripwires: words of a submission that are worth a look; findings with a line number, never a verdict."""

import ast

_IMPORTS = {
    "ctypes": "calls foreign code",
    "cffi": "calls foreign code",
    "subprocess": "starts processes",
    "multiprocessing": "starts processes",
    "threading": "starts threads",
    "concurrent": "starts threads or processes",
    "_thread": "starts threads",
    "signal": "installs signal handlers",
    "gc": "searches live objects",
    "inspect": "reads frames",
    "socket": "opens sockets",
    "mmap": "maps memory",
    "atexit": "runs code at exit",
    "problems": "imports the problem's own code",
    "runner": "imports the evaluator",
    "cupti": "touches the profiler",
    "torch": "uses another framework",
    "jax": "uses another framework",
}
_NAMES = {
    "_getframe": "reads frames",
    "settrace": "hooks the interpreter",
    "setprofile": "hooks the interpreter",
    "RawKernel": "compiles CUDA C++ from text",
    "RawModule": "compiles CUDA C++ from text",
    "ElementwiseKernel": "compiles CUDA C++ from text",
    "ReductionKernel": "compiles CUDA C++ from text",
    "begin_capture": "captures a CUDA graph",
    "Stream": "opens a stream",
    "ExternalStream": "opens a stream",
    "fork": "starts processes",
    "system": "starts processes",
    "popen": "starts processes",
    "execv": "starts processes",
    "exec": "runs text as code",
    "eval": "runs text as code",
    "__import__": "imports by text",
    "_exit": "leaves early",
    "perf_counter": "reads the clock",
    "perf_counter_ns": "reads the clock",
    "get_elapsed_time": "reads the clock",
    "deviceSynchronize": "synchronises or patches the synchroniser",
    "__array_ufunc__": "an array subclass",
    "__array_function__": "an array subclass",
    "call_extern": "calls foreign code",
    "inline_asm": "writes assembly",
}
_DSL_PACKAGES = {
    "tirx": {"tvm", "tvm_ffi"},
    "cutedsl": {"cutlass"},
    "numba": {"numba"},
    "triton": {"triton"},
    "tilelang": {"tilelang"},
}
_MAX_FINDINGS = 40


def findings(tree: ast.AST, dsl: str) -> list[str]:
    """What an eye should fall on, as `line N: word: why`; comments and strings are not looked at."""
    found: dict[str, None] = {}
    others = {package: name for name, packages in _DSL_PACKAGES.items() if name != dsl for package in packages}
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        for name in _imported(node):
            root = name.split(".")[0]
            if root in others:
                found[f"line {line}: {root}: another DSL ({others[root]}) is imported"] = None
            elif root in _IMPORTS:
                found[f"line {line}: {root}: {_IMPORTS[root]}"] = None
        word = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else None
        if word in _NAMES:
            found[f"line {line}: {word}: {_NAMES[word]}"] = None
    return list(found)[:_MAX_FINDINGS]


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and not node.level:
        return [node.module or ""]
    return []
