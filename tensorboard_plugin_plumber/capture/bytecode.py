"""What the bytecode of a Python function touches beyond its own locals.

Nothing is run and nothing is looked up: names are followed as they stand in the code. Which values
on the stack come from outside the function (globals, outer variables, `self`, parameters that outlive
a call) is followed straight through the instructions, which is enough to see a store, a mutating
method, and the names that are used. Python 3.10 to 3.13.
"""

from __future__ import annotations

import dis
import functools
import re
import types
from dataclasses import dataclass, field

# Methods that change what they are called on.
MUTATORS = frozenset(
    {
        "append",
        "extend",
        "insert",
        "add",
        "update",
        "pop",
        "popitem",
        "remove",
        "discard",
        "clear",
        "setdefault",
        "write",
        "writelines",
        "put",
        "put_nowait",
        "get_nowait",
        "send",
        "appendleft",
        "extendleft",
        "popleft",
        "sort",
        "reverse",
        "assign",
        "assign_add",
        "assign_sub",
        "shuffle",
        "seed",
        "__setitem__",
        "__setattr__",
    }
)
# Methods that write a file, whatever they are called on.
FILE_METHODS = frozenset(
    {"write_text", "write_bytes", "touch", "unlink", "imwrite", "to_csv", "tofile", "savefig", "write_file"}
)
# What opens files, and the mode in which it writes them.
_OPENERS = frozenset({"open", "GFile"})
_WRITE_MODE = re.compile(r"(?=[rwaxbt+]{1,4}$).*[wax+]")
_COPIES = frozenset({"COPY", "DUP_TOP", "DUP_TOP_TWO", "SWAP", "ROT_TWO", "ROT_THREE"})
_NOTHING = frozenset({"NOP", "RESUME", "CACHE", "EXTENDED_ARG"})
_LEAVES = ("RETURN_", "RAISE", "RERAISE", "JUMP_FORWARD", "JUMP_ABSOLUTE", "JUMP_BACKWARD")
_LEAVES_RESULT = ("CALL", "BINARY", "BUILD", "COMPARE", "UNARY", "FORMAT", "CONTAINS", "IS_OP", "GET_ITER")
#: How a path begins whose first name is a module that the code itself imports.
IMPORTED = "import "


@dataclass(frozen=True)
class Write:
    """One visible write.

    Attributes:
      kind: "global", "outer", "attribute", "item" or "method".
      path: what is written to: "COUNT", "self.seen".
      name: of the attribute or the method.
    """

    kind: str
    path: str
    name: str = ""


@dataclass(frozen=True)
class Scan:
    """What one code object touches, with all that is defined inside it.

    Attributes:
      writes: in the order of the code.
      uses: names from outside and chains of attributes on them, as they stand: "np.random.rand".
      methods: names of all attributes that are loaded from anything, locals too.
      opens_to_write: it opens a file for writing.
    """

    writes: tuple[Write, ...]
    uses: tuple[str, ...]
    methods: frozenset[str]
    opens_to_write: bool


@functools.lru_cache(maxsize=1024)
def scan(code: types.CodeType, lasting: frozenset[str] = frozenset()) -> Scan:
    """Looks through a code object.

    Args:
      lasting: parameters whose values outlive a call: `self`, what a partial binds, mutable defaults.
    """
    look = _Look(code, lasting)
    for one in dis.get_instructions(code):
        look.step(one)
    writes, uses = look.writes, look.uses
    opens_to_write = look.opens_to_write
    methods = set(code.co_names)
    free = set(code.co_freevars)
    for constant in code.co_consts:
        if not isinstance(constant, types.CodeType):
            continue
        inner = scan(constant, lasting & set(constant.co_freevars))
        own = set(constant.co_freevars) - free - lasting  # they live as long as this call
        writes += [one for one in inner.writes if _root(one.path) not in own]
        uses |= dict.fromkeys(one for one in inner.uses if _root(one) not in own)
        methods |= inner.methods
        opens_to_write = opens_to_write or inner.opens_to_write
    return Scan(tuple(dict.fromkeys(writes)), tuple(uses), frozenset(methods), opens_to_write)


def _root(path: str) -> str:
    return path.split(".", 1)[0]


def _last(path: str) -> str:
    return path.rsplit(".", 1)[-1]


@dataclass
class _Look:
    """The state of one look: the stack, by the path of each value that comes from outside."""

    code: types.CodeType
    lasting: frozenset[str]
    stack: list[str | None] = field(default_factory=list)
    # Locals that stand for a value from outside.
    aliases: dict[str, str] = field(default_factory=dict)
    writes: list[Write] = field(default_factory=list)
    uses: dict[str, None] = field(default_factory=dict)
    opens_to_write: bool = False
    # Offset -> the stack with which a jump arrives there.
    _arrivals: dict[int, list[str | None]] = field(default_factory=dict)
    _left: bool = False

    def __post_init__(self) -> None:
        self._free = set(self.code.co_freevars)

    def step(self, one: dis.Instruction) -> None:
        """Takes one instruction."""
        arriving = self._arrivals.pop(one.offset, None)
        if self._left:
            self.stack, self._left = arriving or [], False
        name = one.opname
        if name in _NOTHING:
            return
        if one.opcode in dis.hasjrel or one.opcode in dis.hasjabs:
            self._jump(one)
        if name.startswith(_LEAVES):
            self._left = True
        if not self._store(name, one.argval) and not self._load(one):
            self._other(one)

    def _jump(self, one: dis.Instruction) -> None:
        effect = dis.stack_effect(one.opcode, one.arg, jump=True)
        after = self.stack[: len(self.stack) + effect] if effect < 0 else [*self.stack, *[None] * effect]
        self._arrivals.setdefault(one.argval, after)

    def _store(self, name: str, operand: object) -> bool:
        """Takes an instruction that stores or deletes; False if it is another one."""
        if name in ("STORE_GLOBAL", "DELETE_GLOBAL"):
            self.writes.append(Write("global", str(operand)))
        elif name in ("STORE_DEREF", "DELETE_DEREF"):
            if operand in self._free:
                self.writes.append(Write("outer", str(operand)))
        elif name in ("STORE_ATTR", "DELETE_ATTR"):
            target = self._pop()
            if target is not None:
                self.writes.append(Write("attribute", target, str(operand)))
        elif name in ("STORE_SUBSCR", "DELETE_SUBSCR", "STORE_SLICE"):
            for _ in range(2 if name == "STORE_SLICE" else 1):
                self._pop()
            target = self._pop()
            if target is not None:
                self.writes.append(Write("item", target))
        elif name == "STORE_FAST_STORE_FAST" and isinstance(operand, tuple):
            for each in operand:
                self._alias(each, self._pop())
            return True
        elif name == "STORE_FAST_LOAD_FAST" and isinstance(operand, tuple):
            self._alias(operand[0], self._pop())
            self.stack.append(self._local(operand[1]))
            return True
        elif name in ("STORE_FAST", "DELETE_FAST"):
            self._alias(str(operand), self._pop() if name == "STORE_FAST" else None)
            return True
        else:
            return False
        if name.startswith("STORE"):
            self._pop()
        return True

    def _load(self, one: dis.Instruction) -> bool:
        """Takes an instruction that loads a name or an attribute; False if it is another one."""
        name, operand = one.opname, one.argval
        effect = dis.stack_effect(one.opcode, one.arg, jump=False)
        if name in ("LOAD_GLOBAL", "LOAD_NAME"):
            self._use(str(operand))
            self.stack += [str(operand)] * effect
        elif name.startswith("LOAD") and name.endswith("DEREF"):
            outer = str(operand) if operand in self._free else self._local(str(operand))
            if outer is not None:
                self._use(outer)
            self.stack += [outer] * effect
        elif name == "LOAD_CLOSURE":
            self.stack.append(None)
        elif name == "LOAD_CONST":
            if isinstance(operand, str) and _WRITE_MODE.match(operand):
                self.opens_to_write |= any(_last(path) in _OPENERS for path in self.stack if path)
            self.stack.append(None)
        elif name.startswith("LOAD_FAST"):
            names = operand if isinstance(operand, tuple) else (operand,)
            self.stack += [self._local(str(each)) for each in names]
        elif name in ("LOAD_ATTR", "LOAD_METHOD", "IMPORT_FROM"):
            target = self.stack[-1] if name == "IMPORT_FROM" and self.stack else None
            target = target if name == "IMPORT_FROM" else self._pop()
            path = None if target is None else f"{target}.{operand}"
            if target is not None and path is not None:
                self._use(path)
                if operand in MUTATORS:
                    self.writes.append(Write("method", target, str(operand)))
            self.stack += [path] * (effect if name == "IMPORT_FROM" else effect + 1)
        elif name == "IMPORT_NAME":
            self._pop()
            self._pop()
            # `import a.b` binds a.
            self.stack.append(f"{IMPORTED}{str(operand).split('.', 1)[0]}")
        else:
            return False
        return True

    def _other(self, one: dis.Instruction) -> None:
        """Any other instruction: by its effect on the depth of the stack."""
        name = one.opname
        if name in _COPIES:
            _rearrange(self.stack, name, one.arg or 0)
            return
        effect = dis.stack_effect(one.opcode, one.arg, jump=False)
        for _ in range(-effect):
            self._pop()
        self.stack += [None] * max(effect, 0)
        # An element of a container from outside belongs to it.
        if effect <= 0 and self.stack and name.startswith(_LEAVES_RESULT) and name != "BINARY_SUBSCR":
            self.stack[-1] = None

    def _pop(self) -> str | None:
        return self.stack.pop() if self.stack else None

    def _use(self, path: str) -> None:
        self.uses[path] = None

    def _local(self, name: str) -> str | None:
        return self.aliases.get(name) or (name if name in self.lasting else None)

    def _alias(self, name: str, path: str | None) -> None:
        if path is None:
            self.aliases.pop(name, None)
        else:
            self.aliases[name] = path


def _rearrange(stack: list[str | None], name: str, count: int) -> None:
    """Copies and swaps: what augmented assignment to a container is compiled to."""
    if name == "COPY":
        stack.append(stack[-count] if len(stack) >= count else None)
    elif name == "DUP_TOP":
        stack.append(stack[-1] if stack else None)
    elif name == "DUP_TOP_TWO":
        stack += stack[-2:]
    elif name == "SWAP" and len(stack) >= count:
        stack[-1], stack[-count] = stack[-count], stack[-1]
    elif name == "ROT_TWO" and len(stack) >= 2:
        stack[-1], stack[-2] = stack[-2], stack[-1]
    elif name == "ROT_THREE" and len(stack) >= 3:
        stack.insert(-2, stack.pop())


def drops_result(code: types.CodeType, instruction: int) -> bool:
    """Whether what the call at an instruction (as `frame.f_lasti`) returns is thrown away by the next one.

    That is what a call as a statement of its own is compiled to.
    """
    raw = code.co_code
    following = instruction + 2
    while following < len(raw) and dis.opname[raw[following]] == "CACHE":  # from Python 3.11 on
        following += 2
    return following < len(raw) and dis.opname[raw[following]] == "POP_TOP"
