"""Random expressions and templates from a small grammar, with a fixed seed, for unexpected
cases: operators on odd operands, chains of filters, white space between nested blocks."""

import random

NAMES = "n zero f third yes none_here s e u ws html xs words empty nested d de deep people mixed"
LITERALS = "1 0 -2 2.5 0.1 1e3 true false none 'a' '' 'Ab\\tc' 'é世' [1,2] [] (1,) {} {'a':1}"
BINARY = "+ - * / // % ~ == != < > <= >= and or in".split() + ["not in"]
FILTERS = """upper lower title capitalize trim length first last list string int float abs
round sort reverse|list join join(',') unique|list sum min max default('z') default('z',true)
tojson items|list
dictsort map('string')|list select|list reject|list map('upper')|list replace('a','b') batch(2)|list
slice(2)|list indent wordcount safe escape string|truncate(5,true) center(9) urlencode d(1)
tojson(indent=2) sort(reverse=true) map(attribute='name')|list selectattr('name')|list
join('-',attribute='name') groupby('age')|list dictsort(by='value') replace('','.') trim('a')
selectattr('age','gt',25)|list map('length')|list select('odd')|list wordcount
round(1,'floor') attr('a') format(1) int(5) float(0.5) max(attribute='age')""".split()
SAFE = """n s u ws yes no f zero xs[1] s[2:] d.a words|join n+1 s~n not(yes) n>2 n==3 s|upper
xs|length words[0] e missing none_here f*2 n//2 (n,f) d xs people[0].name s.split('o') u[3:9]
q v""".split()
TESTS = """defined undefined none string number integer float boolean true false mapping iterable
sequence odd even lower upper callable divisibleby(2) in([1,'a']) eq(1) sameas(none) ne('a')
lt(2)""".split()
METHODS = """upper() lower() strip() lstrip() rstrip() split() split('l') split('o',1) title()
startswith('H') endswith('d') replace('l','L') find('o') count('l') items() keys() values()
get('a') get('q',7) join(['a','b']) isdigit() isalpha() splitlines() capitalize() rsplit('o',1)
strip('Hd') center(7) zfill(6) partition('o') isspace() index('a') casefold() swapcase()
islower()""".split()


class Grammar:
    def __init__(self, seed):
        self.random = random.Random(seed)

    def atom(self):
        pick = self.random.choice
        return pick(NAMES.split()) if self.random.random() < 0.6 else pick(LITERALS.split())

    def expression(self, depth=3):
        pick, chance = self.random.choice, self.random.random()
        if depth == 0 or chance < 0.15:
            return self.atom()
        one = self.expression(depth - 1)
        if chance < 0.4:
            return f"{one} {pick(BINARY)} {self.expression(depth - 1)}"
        if chance < 0.6:
            return f"{self.wrapped(one)} | {pick(FILTERS)}"
        if chance < 0.68:
            return f"{self.wrapped(one)} is {pick(['', 'not '])}{pick(TESTS)}"
        if chance < 0.76:
            return f"{self.wrapped(one)}.{pick(METHODS)}"
        if chance < 0.84:
            index = self.subscript()  # jinja2 slices a literal number at compile time
            one = self.random.choice(NAMES.split()) if ":" in index else self.wrapped(one)
            return f"{one}[{index}]"
        if chance < 0.88:
            return f"{one} if {self.expression(depth - 1)} else {self.expression(depth - 1)}"
        if chance < 0.92:
            return f"[{one}, {self.expression(depth - 1)}]"
        return pick(["not {}", "-{}", "({})", "+{}", "({},)"]).format(one)

    def wrapped(self, one):
        return one if self.random.random() < 0.3 else f"({one})"

    def subscript(self):
        pick = self.random.choice
        ends = ["", "0", "1", "-1", "2", "n", "-9", "9"]
        plain = ["0", "-1", "'a'", "'name'", "n", "1.5", "true", "none", "'0'"]
        return pick([pick(plain), f"{pick(ends)}:{pick(ends)}", f"{pick(ends)}::{pick(ends[1:])}"])

    def tag(self, words):
        pick = self.random.choice
        return "{%" + pick(["", "", "-", "+"]) + f" {words} " + pick(["", "", "-"]) + "%}"

    def text(self):
        pick = self.random.choice
        return "".join(pick([" ", "\n", "  ", "x", "é", "\t", "\n\n", ""]) for _ in range(3))

    def block(self, depth=3):
        pick, chance = self.random.choice, self.random.random()
        inner = self.text() + (self.block(depth - 1) if depth else "") + self.text()
        if chance < 0.25:
            return self.tag(f"if {self.random.choice(SAFE)}") + inner + self.tag("endif")
        if chance < 0.35:
            other = self.text() + self.tag("else") + self.block(0) + self.tag("endif")
            return self.tag(f"if {self.random.choice(SAFE)}") + inner + other
        if chance < 0.6:
            source = pick(["xs", "words", "nested", "d", "s[:3]", "range(n)", "empty", "people"])
            loop = pick(
                ["loop.index", "loop.last", "loop.first", "loop.length", "v", "loop.cycle(1, 2)"]
            )
            body = "{{" + pick(["", "-"]) + f" {loop} " + pick(["", "-"]) + "}}" + inner
            test = pick(["", "", " if v", " if v is string", " if v != 1"])
            return self.tag(f"for v in {source}{test}") + body + self.tag("endfor")
        if chance < 0.7:
            return self.tag("set q") + inner + self.tag("endset") + "{{ q }}{{ q | length }}"
        if chance < 0.8:
            return self.tag(f"set q = {self.random.choice(SAFE)}") + inner + "{{ q is defined }}"
        if chance < 0.87:
            macro = self.tag("macro m(a, b=2)") + "{{ a }}{{ b }}" + inner + self.tag("endmacro")
            return macro + "{{ m(1) }}{{ m(b=s, a=n) }}"
        if chance < 0.92:
            return "{#" + pick(["", "-"]) + " words " + pick(["", "-"]) + "#}" + inner
        return (
            "{{"
            + pick(["", "-"])
            + f" {self.random.choice(SAFE)} "
            + pick(["", "-"])
            + "}}"
            + inner
        )


def expressions(count, seed=1):
    grammar = Grammar(seed)
    depths = [grammar.random.choice([1, 2, 2, 3]) for _ in range(count)]
    return ["{{ " + grammar.expression(depth) + " }}" for depth in depths]


def templates(count, seed=1):
    grammar = Grammar(seed)
    return ["".join(grammar.text() + grammar.block() for _ in range(3)) for _ in range(count)]
