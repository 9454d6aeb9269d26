"""Instrumented code behaves exactly like the original: values, exceptions, their text, and the lines they cross."""

from __future__ import annotations

import sys
import textwrap

import pytest

from tests.instrument.support import fresh_name, load_instrumented, load_plain, outcome, recording

PROGRAMS: dict[str, str] = {
    "evaluation order of a subscript store": """
        log = []
        def say(x, v): log.append(x); return v
        def run():
            d = {}
            say("o", d)[say("i", 1)] = say("v", 2)
            say("o", d)[say("i", 1)] += say("w", 5)
            say("a", d)[say("b", 1)], say("c", d)[say("e", 3)] = say("x", (7, 8))
            del say("p", d)[say("q", 3)]
            return d, log
    """,
    "evaluation order of attributes and calls": """
        log = []
        class C:
            def __init__(self): self.n = 0
            @property
            def f(self): log.append("f"); return self.g
            def g(self, *a, **k): log.append("g"); return a, k
        def say(x): log.append(x); return x
        def run():
            c = C()
            first = c.f(say(1), *[say(2)], k=say(3), **{"z": say(4)})
            c.n += say(5)
            a = c.n = say(6)
            return first, a, c.n, log
    """,
    "attribute missing before arguments are evaluated": """
        log = []
        def run():
            class C: pass
            try: C().missing(log.append(1))
            except AttributeError as e: return str(e), log
    """,
    "augmented assignment evaluates its target once": """
        count = 0
        class L:
            def __init__(self): self.v = [1]; self.k = 0
            def __getitem__(self, i): return self.v[i]
            def __setitem__(self, i, x): self.v[i] = x
        def make():
            global count
            count += 1
            return box
        box = L()
        def run():
            make()[0] += 4
            make().k += 2
            make().v[make().k - 2] += 10
            return box.v, box.k, count
    """,
    "name mangling": """
        class _Priv:
            __shared = 5
            def __init__(self): self.__x = 1; self.__d = {"__k": 2}
            def get(self): return self.__x + self.__shared, self.__d["__k"]
            def bump(self):
                self.__x += 1
                del self.__d
                return vars(self), hasattr(self, "__x")
            def closure(self):
                __v = 1
                def inner():
                    nonlocal __v
                    __v += 1
                    return __v
                return inner() + inner()
        def run():
            p = _Priv()
            return p.get(), p.bump(), sorted(vars(p)), p.closure()
    """,
    "slots, properties, descriptors, class attributes": """
        class D:
            def __set_name__(self, owner, name): self.name = name
            def __get__(self, o, t=None): return self if o is None else o.store.get(self.name, "unset")
            def __set__(self, o, v): o.store[self.name] = v * 2
            def __delete__(self, o): del o.store[self.name]
        class S:
            __slots__ = ("a", "store")
            d = D()
            shared = []
            def __init__(self): self.store = {}
            @property
            def p(self): return self.d
            @p.setter
            def p(self, v): self.d = v
            @classmethod
            def k(cls): return cls.shared
            @staticmethod
            def s(x): return x
        def run():
            s = S()
            before = s.p
            s.p = 4
            s.p += 1
            mid = s.d
            del s.d
            s.k().append(1)
            try: s.a
            except AttributeError as e: err = str(e)
            try: s.nope = 1
            except AttributeError as e: err2 = str(e)
            return before, mid, s.p, S.shared, s.s(3), err, err2
    """,
    "super and __class__": """
        class A:
            def f(self, x=1): return ["A", x]
            def __init_subclass__(cls, **k): cls.k = k
        class B(A, z=3):
            def f(self, *a): return super().f(*a) + [__class__.__name__]
            def g(self): return [super(B, self).f(2), (lambda: super(B, self).f())()]
            @classmethod
            def c(cls): return super().__name__ if hasattr(super(), "__name__") else super().__thisclass__.__name__
        def run():
            return B().f(), B().g(), B.c(), B.k
    """,
    "closures, nonlocal and late binding": """
        def run():
            n = 0
            fs = []
            for i in range(3):
                def f(j=i):
                    nonlocal n
                    n += i + j
                    return n
                fs.append(f)
            got = [f() for f in fs]
            later = [lambda: i for i in range(3)]
            def cell():
                return missing
            try: cell()
            except NameError as e: err = str(e)
            missing = 1
            del missing
            try: cell()
            except NameError as e: err += str(e)
            return got, n, [g() for g in later], err
    """,
    "comprehensions, walrus, conditions": """
        def run():
            data = {"a": [1, 2, 3], "b": []}
            total = [y := x + 1 for x in data["a"] if x if not x > 2]
            nested = {k: [v * 2 for v in vs if (last := v)] for k, vs in data.items() if vs or k}
            s = {x for xs in data.values() for x in xs}
            g = sum(x for x in data["a"])
            if (n := len(data)) > 1 and not data["b"]: n += 1
            return total, y, nested, last, s, g, n, [*s, *data], {**data, "c": 0}
    """,
    "class body scopes": """
        x = "global"
        def run():
            x = "local"
            class K:
                a = x
                x = "class"
                b = [x for _ in range(1)]
                c = lambda self: x
                d = {k: v for k, v in {"p": 1}.items()}
                names = sorted(n for n in locals() if not n.startswith("__"))
                def m(self): return x
            return K.a, K.b, K().c(), K.d, K.names, K().m()
    """,
    "locals, vars, eval, exec, dir": """
        def run(p=1):
            q = [2]
            r = q[p - 1]
            q.append(r)
            before = dict(locals())
            s = eval("p + r")
            ns = {}
            exec("z = 3", ns)
            def inner():
                return p, sorted(locals()), dir()
            class C: pass
            c = C(); c.a = 1
            vars(c)["b"] = 2
            c.__dict__.update(d=3)
            return before, s, ns["z"], inner(), sorted(vars(c).items()), sorted(locals()), (c.b, c.d)
    """,
    "pattern matching": """
        from dataclasses import dataclass
        @dataclass
        class P:
            x: int
            y: object = None
        class Q:
            __match_args__ = ("u",)
            def __init__(self, u): self.u = u; self.w = 9
        def kind(v):
            match v:
                case 0 | 1: return "small"
                case [a, *rest] if rest: return ("list", a, rest)
                case {"k": k, **others}: return ("map", k, others)
                case P(x=0, y=[inner]): return ("p0", inner)
                case P(x, y): return ("p", x, y)
                case Q(u, w=w): return ("q", u, w)
                case str() as s: return s.upper()
                case _: return "other"
        def run():
            return [kind(v) for v in (0, [1, 2], [1], {"k": 1, "m": 2}, P(0, [5]), P(1), Q(3), "s", None)]
    """,
    "star unpacking and chained assignment": """
        def run():
            a, *b = c = [1, 2, 3]
            (d, e), f = (a, b), c
            g = h = []
            g.append(1)
            x = y = {}
            x["k"], y["k"] = 1, 2
            [m, n] = "mn"
            for i, (j, *k) in enumerate([(1, 2, 3)]): pass
            return a, b, c, d, e, f, g is h, x, m, n, i, j, k
    """,
    "decorators, defaults and lambdas": """
        import functools
        def deco(n):
            def wrap(f):
                @functools.wraps(f)
                def inner(*a, **k): return [n, f(*a, **k)]
                return inner
            return wrap
        def run():
            seen = []
            @deco(1)
            @deco(seen.append(0) or 2)
            def f(x, /, y=[0], *, z=None): y.append(x); return list(y), z
            g = lambda x, *a, k=seen: (x, a, k)
            return f(1), f(2, z=3), f.__name__, g(1, 2), (lambda: seen)(), seen
    """,
    "generators, sends, throws and yield from": """
        def gen(log):
            try:
                x = yield 1
                log.append(x)
                y = yield from inner(log)
                log.append(y)
            except KeyError as e:
                log.append(("caught", str(e)))
                yield "k"
            finally:
                log.append("end")
        def inner(log):
            got = yield from [7, 8]
            r = yield 2
            return (got, r)
        def run():
            log = []
            g = gen(log)
            out = [next(g), g.send("s"), next(g), next(g)]
            out.append(g.throw(KeyError("q")))
            g.close()
            return out, log
    """,
    "async generators, async with, async for, async comprehension": """
        import asyncio
        from contextlib import asynccontextmanager
        @asynccontextmanager
        async def ctx(log):
            log.append("in")
            try: yield log
            finally: log.append("out")
        async def agen(n):
            for i in range(n):
                await asyncio.sleep(0)
                yield i
        class It:
            def __init__(self): self.n = 0
            def __aiter__(self): return self
            async def __anext__(self):
                self.n += 1
                if self.n > 2: raise StopAsyncIteration
                return self.n
        async def run():
            log = []
            async with ctx(log) as l, ctx(l):
                async for i in agen(2): l.append(i)
                else: l.append("else")
                l.append([x async for x in It() if x])
                l.append({k: v for k, v in [(1, 2)]})
            total = {"n": 1}
            async def add(): await asyncio.sleep(0); return 5
            total["n"] += await add()
            total[await add()] = [await add()]
            return log, total
    """,
    "loops whose body suspends": """
        import asyncio
        async def run():
            d, out = {"a": [1], "b": [2]}, []
            for k, v in d.items():
                await asyncio.sleep(0)
                d[k] = v + [0]
                out.append((k, v))
            for x in (l := [1, 2, 3]):
                await asyncio.sleep(0)
                if x == 1: l.remove(1)
                out.append(x)
            for i, x in enumerate(reversed(l)):
                await asyncio.sleep(0)
                if x: continue
                break
            else:
                out.append("else")
            try:
                for k in d:
                    await asyncio.sleep(0)
                    d.pop("b", None)
                    d["c"] = 0; d["e"] = 1
            except RuntimeError as e:
                out.append(str(e))
            return out, sorted(d)
    """,
    "global variables": """
        counter = 0
        cache = {}
        def bump():
            global counter, made
            counter += 1
            made = cache.setdefault("k", [])
            made.append(counter)
            for counter in range(counter, counter + 2): pass
            import math as made2
            return made2 is not None
        def drop():
            global made
            del made
        def run():
            got = bump(), counter, made, cache
            drop()
            try: return made
            except NameError as e: return got, str(e)
    """,
    "containers and their subclasses": """
        from collections import Counter, OrderedDict, defaultdict, deque
        class Log(dict):
            def __setitem__(self, k, v): super().__setitem__(k, ("set", v))
            def __missing__(self, k): return ("missing", k)
            def __len__(self): return 99
        class Stack(list):
            def push(self, x): self.append(x); return len(self)
            def __contains__(self, x): return x == "always"
        def run():
            d = defaultdict(list); d["a"].append(1); d["b"]
            c = Counter("abca"); c["a"] += 1; c.update("zz"); c.subtract({"z": 1})
            o = OrderedDict(x=1, y=2); o.move_to_end("x"); o.popitem(last=False)
            q = deque([1, 2], maxlen=2); q.append(3); q.rotate(1); q[0] = 9
            l = Log(a=1); l["b"] = 2
            s = Stack(); s.push(1); s += [2, 3]; s[1:2] = [7, 8]; del s[0]; s[-1] = 0
            b = bytearray(b"ab"); b[0] = 99; b += b"x"
            t = {1, 2}; t |= {3}; t -= {1}; t.discard(9); t.add(4)
            e = [3, 1]; e.sort(); e.insert(0, 5); e.extend(x for x in (1, 2)); e *= 2
            return (d, c, o, q, l, l["q"], len(l), bool(l), s, "always" in s, 7 in s, b, t, e, e[::2], e[-1:],
                    sorted(t), max(e), {**d}, d == {"a": [1]}, d | {"z": 1}, f"{d['a']!r:>5}", d.get("a"), d.pop("a"))
    """,
    "getattr, setattr, __getattr__, __setattr__": """
        class G:
            def __init__(self): object.__setattr__(self, "d", {})
            def __getattr__(self, n):
                if n.startswith("x"): return n
                raise AttributeError(f"no {n}")
            def __setattr__(self, n, v): self.d[n] = v; super().__setattr__(n, [v])
            def __delattr__(self, n): super().__delattr__(n)
        class H:
            def __getattribute__(self, n): return ("H", n)
        def run():
            g = G()
            g.a = 1
            setattr(g, "b", 2)
            got = g.a, g.xa, getattr(g, "b"), getattr(g, "nope", 0), hasattr(g, "zz"), H().q
            del g.a
            try: g.nope
            except AttributeError as e: return got, str(e), g.d
    """,
    "exceptions, notes, groups and chaining": """
        def run():
            try:
                try: {}["k"]
                except KeyError as e:
                    e.add_note("n")
                    raise ValueError([1][5:]) from e
            except ValueError as e2: return repr(e2), repr(e2.__cause__), e2.__cause__.__notes__
            finally: pass
    """,
    "except star": """
        def run():
            out = []
            try: raise ExceptionGroup("g", [ValueError(1), KeyError(2), TypeError(3)])
            except* ValueError as eg: out.append(repr(eg.exceptions))
            except* (KeyError, TypeError) as eg: out.append(len(eg.exceptions))
            return out
    """,
    "docstrings, annotations and future": '''
        """module doc"""
        from __future__ import annotations
        CONST: int = 1
        def f(a: undefined, b: "str" = "x") -> nothing:
            """doc of f"""
            v: also_undefined = [1]
            w: int
            def inner(): return v
            v = [2]
            return inner(), a, b
        class C:
            """doc of C"""
            n: int = 0
        def run():
            return f(1), f.__doc__, f.__annotations__, C.__annotations__, C.__doc__, __doc__
    ''',
    "user hash and eq run as often as before": """
        calls = []
        class K:
            def __init__(self, v): self.v = v
            def __hash__(self): calls.append(("h", self.v)); return 1
            def __eq__(self, o): calls.append(("e", self.v)); return self.v == o.v
            def __repr__(self): calls.append("r"); return "K"
            def __bool__(self): calls.append("b"); return True
            def __len__(self): calls.append("l"); return 1
        def run():
            a, b = K(1), K(2)
            d = {a: 1}
            d[b] = 2
            x = a in d, d.get(b), d.pop(a), d.setdefault(b, 3)
            l = [a, b]
            y = b in l, l.index(b), l == [a, b]
            s = {a}; s.add(b); s.discard(a)
            if a and not b: pass
            return x, y, len(a), f"{a}", calls
    """,
    "iteration protocols": """
        log = []
        class I:
            def __init__(self, n): self.n = n
            def __iter__(self): log.append("iter"); return self
            def __next__(self):
                self.n -= 1
                log.append(self.n)
                if self.n < 0: raise StopIteration
                return self.n
        def run():
            i = I(3)
            first = next(iter(i))
            rest = [*i]
            a, b = I(2)
            return first, rest, a, b, list(zip(I(2), "ab")), next(I(0), "default"), dict(zip("a", I(1))), log
    """,
}
if sys.version_info >= (3, 12):
    PROGRAMS["type parameters"] = """
        def first[T](xs: list[T]) -> T: return xs[0]
        class Box[T]:
            items: list[T]
            def __init__(self): self.items = []
            def put[U](self, x: U) -> U: self.items.append(x); return x
        type Alias[T] = dict[str, T]
        def run():
            type Local = list[int]
            b = Box[int]()
            text = f"{f"{b.items}"}"
            return first([1]), b.put(3), b.items, Box.__type_params__, Alias.__value__, Local.__value__, text
    """

FAILING: dict[str, str] = {
    "unbound method chain over several lines": """
        class C:
            def a(self): return self
            def bad(self, x): raise ValueError(x)
        def run():
            c = C()
            return (c
                    .a()
                    .a()
                    .bad(
                        1,
                    )
                    .a())
    """,
    "missing attribute": "def run():\n    x = [1]\n    x.apend(\n      2)\n",
    "wrong arguments": "def f(a, *, b): pass\ndef run():\n    g = f\n    return g(1,\n      2, c=3)\n",
    "not callable": "def run():\n    x = {'a': 5}\n    return x['a'](\n       1)\n",
    "not subscriptable": "def run():\n    x = 5\n    y = [0]\n    return (x\n       [y[0] + 1])\n",
    "no item assignment": "def run():\n    x = 'abc'\n    x[len(x) - 1] = 'd'\n",
    "key error": "def run():\n    d = {}\n    k = 'a'\n    return d[\n      k]\n",
    "index error in a store": "def run():\n    l = []\n    l[0 + 0] = 1\n",
    "unbound local": "def run():\n    l = [1]\n    l[i] = 1\n    i = 0\n",
    "unbound local in place": "def run():\n    n += [1]\n",
    "name error": "def run():\n    return [nothing.x\n       for _ in (1,)]\n",
    "assertion": "def run():\n    d = {'a': 1}\n    assert (d['a'] ==\n       2), f'{d}'\n",
    "too few values": "def run():\n    a, b = [1]\n",
    "not iterable": "import asyncio\nasync def run():\n    for x in 5:\n        await asyncio.sleep(0)\n",
    "changed size": (
        "import asyncio\nasync def run():\n    d = {1: 2}\n    for k in d:\n"
        "        await asyncio.sleep(0)\n        d[k + 1] = 0\n"
    ),
    "user code in the middle": (
        "class K:\n    def __hash__(self): return 1\n    def __eq__(self, o):\n        raise LookupError\n"
        "def run():\n    d = {K(): 1}\n    d[\n    K()] = 2\n"
    ),
    "bad stars": "def f(*a, **k): pass\ndef run():\n    f(*[1], **{1: 2})\n",
    "await of nothing": "async def run():\n    d = {'n': 1}\n    d['n'] += await d['n']\n",
    "recursion": "def run(n=0):\n    try: return run(n + 1)\n    except RecursionError: return 'deep'\n",
}


def _both(source: str) -> tuple[object, object]:
    source = textwrap.dedent(source)
    name = fresh_name()
    plain = outcome(load_plain(source, name, f"/{name}.py").run)
    module = load_instrumented(source, name, f"/{name}.py")
    with recording():
        hooked = outcome(module.run)
    return plain, hooked


@pytest.mark.parametrize("title", PROGRAMS)
def test_same_value(title: str) -> None:
    plain, hooked = _both(PROGRAMS[title])
    assert plain.error is None, plain
    assert hooked == plain


@pytest.mark.parametrize("title", PROGRAMS)
def test_same_value_while_recording_is_off(title: str) -> None:
    source = textwrap.dedent(PROGRAMS[title])
    name = fresh_name()
    plain = outcome(load_plain(source, name, f"/{name}.py").run)
    assert outcome(load_instrumented(source, name, f"/{name}.py").run) == plain


@pytest.mark.parametrize("title", PROGRAMS)
def test_same_value_in_detail(title: str) -> None:
    source = textwrap.dedent(PROGRAMS[title])
    name = fresh_name()
    plain = outcome(load_plain(source, name, f"/{name}.py").run)
    module = load_instrumented(source, name, f"/{name}.py")
    with recording(detail=True):
        assert outcome(module.run) == plain


@pytest.mark.parametrize("title", FAILING)
def test_same_exception_from_the_same_lines(title: str) -> None:
    plain, hooked = _both(FAILING[title])
    assert hooked == plain
