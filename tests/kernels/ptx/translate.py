"""Translates the PTX that an object file or a text file contains into C++ for tests/kernels/ptx.

  python translate.py OUT.cpp FILE.ptx
  python translate.py OUT.cpp OBJECT CUOBJDUMP

Each entry becomes a function that one thread of a launch runs. Registers are its variables;
memory is accessed through functions of ptx.h, which check bounds and alignment. An instruction
that is not known here ends the translation."""

import pathlib
import re
import subprocess
import sys

CLASSES = {"p": "bool", "rs": "u16", "r": "u32", "rd": "u64", "f": "float", "fd": "double"}
TYPES = {
    **{f"{kind}{bits}": f"{kind}{bits}" for kind in "us" for bits in (8, 16, 32, 64)},
    **{f"b{bits}": f"u{bits}" for bits in (8, 16, 32, 64)},
    "f32": "float",
    "f64": "double",
    "pred": "bool",
}
SPECIAL = {
    "%tid.x": "emulation::thread.x",
    "%ctaid.x": "emulation::block.x",
    "%nctaid.x": "emulation::grid.x",
}
COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
INFIX = {"and": "&", "or": "|", "xor": "^", "add": "+", "sub": "-"}
CALLS = {  # the function of ptx.h for each instruction that is one
    "shl": "shift_left",
    "shr": "shift_right",
    "min": "least",
    "max": "most",
    "mul.hi": "high_product",
    "div.approx": "approximate_quotient",
    "ex2.approx": "approximate_exp2",
    "rsqrt.approx": "approximate_rsqrt",
    "fma.rn": "std::fma",
    "fma.rm": "fma_down",
    "sqrt.rn": "std::sqrt",
    "abs": "std::abs",
    "prmt": "permute",
    "cvt.rn.bf16.f32": "to_bf16",
    "cvt.rn.f16.f32": "to_f16",
    "cvt.f32.bf16": "from_bf16",
    "cvt.f32.f16": "from_f16",
    "cvt.sat.f32.f32": "saturate",
    "cvt.rn.satfinite.e4m3x2.f32": "to_e4m3x2",
}


VARIABLE = r"\.(shared|local) \.align (\d+) \.[a-z](\d+) ([\w$]+)(?:\[(\d+)\])?;"


def variable(match):
    """(space, name, alignment, bytes)"""
    space, align, bits, name, count = match.groups()
    return space, name, int(align), int(bits) // 8 * int(count or 1)


def fail(line):
    sys.exit(f"translate.py: unknown instruction or operand: {line}")


class Entry:
    """One kernel: its parameters, memory and instructions."""

    def __init__(self, name, parameters, limit, body, module):
        self.name, self.limit, self.module = name, limit, module
        self.parameters = {parameter: number for number, parameter in enumerate(parameters)}
        self.registers, self.shared, self.local, self.lines = set(), {}, {}, []
        self.shared_bytes = 0
        for line in body:
            self.line = line
            self.statement(line)

    def allot(self, name, align, size):
        self.shared_bytes = -(-self.shared_bytes // align) * align
        self.shared[name] = self.shared_bytes
        self.shared_bytes += size

    def statement(self, line):
        if match := re.match(VARIABLE, line):
            space, name, align, size = variable(match)
            if space == "local":
                self.local[name] = size
            else:
                self.allot(name, align, size)
            return
        if line.startswith((".reg", ".pragma", ".loc")):
            return
        if match := re.match(r"([\w$]+):$", line):
            return self.lines.append(f"{self.label(match[1])}:;")
        match = re.match(r"(?:@(!?)(%p\d+) +)?([\w.]+)(?: +(.*))?;$", line)
        if not match:
            fail(line)
        negated, guard, opcode, rest = match.groups()
        operands = [part.strip() for part in re.split(r",(?![^{]*\})", rest or "") if part.strip()]
        text = self.instruction(opcode.split("."), operands)
        if guard:
            text = f"if ({negated}{self.register(guard)}) {{ {text} }}"
        self.lines.append(text)

    @staticmethod
    def label(name):
        return name.replace("$", "L")

    def register(self, name):
        self.registers.add(name)
        return name[1:]

    @staticmethod
    def kind(name):
        if name in ("%SP", "%SPL"):  # of the thread's memory
            return "u64"
        match = re.fullmatch(r"%(p|rs|rd|r|fd|f)\d+", name)
        return match and CLASSES[match[1]]

    def read(self, operand, kind):
        """The operand as a value of this C++ type."""
        if own := self.kind(operand):
            name = self.register(operand)
            if own == kind:
                return name
            bits = "float" in (own, kind) or "double" in (own, kind)
            return f"std::bit_cast<{kind}>({name})" if bits else f"static_cast<{kind}>({name})"
        if operand in SPECIAL:
            return f"static_cast<{kind}>({SPECIAL[operand]})"
        if match := re.fullmatch(r"0f([0-9A-Fa-f]{8})", operand):
            return f"std::bit_cast<float>(u32{{0x{match[1]}}})"
        if match := re.fullmatch(r"0d([0-9A-Fa-f]{16})", operand):
            return f"std::bit_cast<double>(u64{{0x{match[1]}}})"
        if re.fullmatch(r"-?\d+|0x[0-9A-Fa-f]+", operand):
            return f"static_cast<{kind}>({operand}{'LL' if operand[0] == '-' else 'ULL'})"
        if operand in self.module and operand not in self.shared:
            self.allot(operand, *self.module[operand])
        if operand in self.shared:
            return f"static_cast<{kind}>({self.shared[operand]})"
        if operand in self.local:
            return f"reinterpret_cast<u64>({operand})"
        if operand in self.parameters:
            return f"reinterpret_cast<u64>(arguments[{self.parameters[operand]}])"
        fail(self.line)

    def write(self, operand, value):
        own = self.kind(operand)
        if not own:
            fail(self.line)
        if own in ("float", "double", "bool"):
            return f"{self.register(operand)} = {value};"
        return f"{self.register(operand)} = static_cast<{own}>({value});"

    def address(self, operand):
        base, _, offset = operand.strip("[]").partition("+")
        return f"{self.read(base, 'u64')} + static_cast<u64>({offset or 0}LL)"

    def memory(self, parts, operands):
        space, kind = parts[1], TYPES[parts[-1]]
        vector = next((int(part[1]) for part in parts if part in ("v2", "v4")), 1)
        loads = parts[0] == "ld"
        target, place = operands if loads else operands[::-1]
        names = [name.strip() for name in target.strip("{}").split(",")]
        if len(names) != vector:
            fail(self.line)
        text = f"{{ {kind}* const at = {space}_at<{kind}, {vector}>({self.address(place)}); "
        for number, name in enumerate(names):
            value = f"at[{number}]"
            if loads and self.kind(name) in ("float", "double") and kind[0] != self.kind(name)[0]:
                fail(self.line)
            text += (
                self.write(name, value) if loads else f"{value} = {self.read(name, kind)};"
            ) + " "
        return text + "}"

    def moved(self, kind, operands):
        to, source = operands
        if to.startswith("{"):
            halves = [name.strip() for name in to.strip("{}").split(",")]
            bits = int(kind[1:]) // 2
            whole = self.read(source, f"u{2 * bits}")
            first, second = (
                self.write(name, f"static_cast<u{bits}>({whole} >> {shift})")
                for name, shift in zip(halves, (0, bits))
            )
            return first + " " + second
        if source.startswith("{"):
            low, high = (name.strip() for name in source.strip("{}").split(","))
            bits = int(kind[1:]) // 2
            whole = f"u{2 * bits}"
            value = (
                f"static_cast<{whole}>({self.read(high, f'u{bits}')}) << {bits} | "
                f"static_cast<{whole}>({self.read(low, f'u{bits}')})"
            )
            own = self.kind(to)
            return self.write(
                to,
                f"std::bit_cast<{own}>({whole}({value}))" if own in ("float", "double") else value,
            )
        return self.write(to, self.read(source, self.kind(to)))

    def converted(self, parts, operands):
        to, source = operands
        wanted, given = TYPES[parts[-2]], TYPES[parts[-1]]
        return self.write(to, f"static_cast<{wanted}>({self.read(source, given)})")

    def compared(self, parts, operands):
        how, kind = parts[1], TYPES[parts[2]]
        a, b = (self.read(operand, kind) for operand in operands[1:])
        if how in COMPARE:
            return self.write(operands[0], f"{a} {COMPARE[how]} {b}")
        if how.endswith("u") and how[:-1] in COMPARE:  # also true for NaN
            return self.write(operands[0], f"either_nan({a}, {b}) || {a} {COMPARE[how[:-1]]} {b}")
        fail(self.line)

    def exchanged(self, operands):
        to, _, _ = operands[0].partition("|")
        values = ", ".join(self.read(operand, "u32") for operand in operands[1:])
        return self.write(to, f"exchanged({values})")

    def instruction(self, parts, operands):
        opcode = ".".join(parts)
        if parts[0] == "bra":
            return f"goto {self.label(operands[0])};"
        if opcode == "ret":
            return "return;"
        if opcode == "bar.sync" and operands == ["0"]:
            return "emulation::sync_block();"
        if opcode == "membar.gl":
            return ";"
        if parts[0] in ("ld", "st"):
            return self.memory(parts, operands)
        if parts[0] == "mov":
            return self.moved(parts[1], operands)
        if parts[0] == "setp" and len(parts) == 3:
            return self.compared(parts, operands)
        if opcode == "shfl.sync.bfly.b32":
            return self.exchanged(operands)
        if parts[0] == "atom":
            space, how, kind = parts[1], parts[2], TYPES[parts[3]]
            value = self.read(operands[2], kind)
            place = f"{space}_at<{kind}, 1>({self.address(operands[1])})"
            return self.write(operands[0], f"atomic_{how}({place}, {value})")
        if opcode in CALLS:
            kinds = {"to_e4m3x2": "float", "from_bf16": "u16", "from_f16": "u16"}
            kind = kinds.get(CALLS[opcode], "float")
            values = ", ".join(self.read(operand, kind) for operand in operands[1:])
            return self.write(operands[0], f"{CALLS[opcode]}({values})")
        if parts[0] == "cvta":
            return self.write(operands[0], self.read(operands[1], "u64"))
        if parts[0] == "cvt":
            return self.converted([part for part in parts if part != "rn"], operands)
        return self.arithmetic(parts, operands)

    def arithmetic(self, parts, operands):
        parts = [part for part in parts if part != "ftz"]
        kind, name = TYPES[parts[-1]], ".".join(parts[:-1])
        values = [self.read(operand, kind) for operand in operands[1:]]
        if name in ("shl", "shr"):
            values[1] = self.read(operands[2], "u32")
        if name == "selp":
            choice = self.read(operands[3], "bool")
            value = f"{choice} ? {self.read(operands[1], kind)} : {self.read(operands[2], kind)}"
        elif name in CALLS:
            value = f"{CALLS[name]}({', '.join(values)})"
        elif name in ("mul.wide", "mul.lo", "mad.lo"):
            wide = f"{kind[0]}64" if name == "mul.wide" else f"u{kind[1:]}"
            factors = [f"static_cast<{wide}>({value})" for value in values[:2]]
            value = f"static_cast<{wide}>({factors[0]} * {factors[1]})"
            if name == "mad.lo":
                value += f" + static_cast<{wide}>({values[2]})"
        elif name in INFIX or (parts[0] in INFIX and name.endswith(".rn")):
            value = f"{values[0]} {INFIX[parts[0]]} {values[1]}"
            if kind[0] == "s":  # wraps around
                whole = [f"static_cast<u{kind[1:]}>({value})" for value in values[:2]]
                value = f" {INFIX[parts[0]]} ".join(whole)
        elif name in ("mul", "mul.rn"):
            value = f"{values[0]} * {values[1]}"
        elif name in ("div", "div.rn"):
            value = f"{values[0]} / {values[1]}"
        elif name == "rem":
            value = f"{values[0]} % {values[1]}"
        elif name == "rcp.rn":
            value = f"{kind}{{1}} / {values[0]}"
        elif name == "neg":
            value = f"-{values[0]}"
        elif name == "not":
            value = f"!{values[0]}" if kind == "bool" else f"~{values[0]}"
        else:
            fail(self.line)
        return self.write(operands[0], value)

    def text(self, number):
        rows = [f"void entry_{number}(void* const* arguments) {{"]
        for name in sorted(self.registers):
            rows.append(f"  {self.kind(name)} {name[1:]} = {{}};")
        for name, size in self.local.items():
            rows.append(f"  alignas(16) char {name}[{size}];")
        rows += [f"  {line}" for line in self.lines]
        return "\n".join(rows + ["}"])


def entries(ptx):
    pattern = r"\.entry ([\w$]+)\((.*?)\)\s*((?:\.\w+ [^\n{]*\n)*)\{(.*?)\n\}"
    outside = re.sub(pattern, "", ptx, flags=re.S)
    found = [variable(match) for match in re.finditer(VARIABLE, outside)]
    module = {name: (align, size) for _, name, align, size in found}
    for match in re.finditer(pattern, ptx, re.S):
        name, parameters, directives, body = match.groups()
        names = [part.split()[-1].split("[")[0] for part in parameters.split(",") if part.strip()]
        limit = re.search(r"\.maxntid (\d+)", directives)
        body = re.sub(r"\{ (cvt[^;]*;)\}", r"\1", body)
        statements = re.sub(r"\s*\n\s*", "\n", body).strip().split("\n")
        yield Entry(name, names, int(limit[1]) if limit else 1024, statements, module)


def main():
    out, source, *cuobjdump = sys.argv[1:]
    if cuobjdump:
        command = [cuobjdump[0], "-ptx", source]
        ptx = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    else:
        ptx = pathlib.Path(source).read_text()
    if ptx.count(".address_size 64") != 1:
        sys.exit(f"translate.py: {source} does not contain PTX of one architecture")
    found = list(entries(ptx))
    if len(found) != ptx.count(".entry "):
        sys.exit(f"translate.py: {len(found)} of the {ptx.count('.entry ')} entries were read")
    text = [
        f"// From {pathlib.Path(source).name} by tests/kernels/ptx/translate.py.",
        '#include "tests/kernels/ptx/ptx.h"',
        "namespace lft::ptx {",
        "namespace {",
        *(entry.text(number) for number, entry in enumerate(found)),
        "const Entry kEntries[] = {",
    ]
    for number, entry in enumerate(found):
        text.append(f'  {{"{entry.name}", entry_{number}, {entry.limit}, {entry.shared_bytes}}},')
    text += [
        "};",
        "const Registered registered(kEntries);",
        "}  // namespace",
        "}  // namespace lft::ptx",
    ]
    pathlib.Path(out).write_text("\n".join(text) + "\n")


main()
