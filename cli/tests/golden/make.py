#!/usr/bin/env python3
"""Makes the directories beside this file and records what Kafka's own dump tool says about them.

    make.py KAFKA GOLDEN

KAFKA is the harness command of xtask (`kafka dump ...` runs kafka-dump-log, `kafka replay` builds batches),
GOLDEN the folder of directories that a real Kafka wrote. Every case is a folder of small files; every run of the tool
is a pair of files in it: RUN.cmd (arguments, exit code, standard error without stack traces) and RUN.out (standard
output, byte for byte).
"""

import base64
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
KAFKA, GOLDEN = sys.argv[1], sys.argv[2]
ENV = dict(os.environ, LC_ALL="C.UTF-8")
Z = "00000000000000000000"


def crc32c(data):
    table = []
    for n in range(256):
        for _ in range(8):
            n = (n >> 1) ^ (0x82F63B78 if n & 1 else 0)
        table.append(n)
    crc = 0xFFFFFFFF
    for b in data:
        crc = (crc >> 8) ^ table[(crc ^ b) & 0xFF]
    return crc ^ 0xFFFFFFFF


def seal(batch):
    """Puts the right checksum on a batch of magic 2."""
    batch = bytearray(batch)
    batch[17:21] = struct.pack(">I", crc32c(batch[21:]))
    return bytes(batch)


def varint(n):
    n = (n << 1) ^ (n >> 31)
    out = bytearray()
    while True:
        if n < 0x80:
            out.append(n)
            return bytes(out)
        out.append(n & 0x7F | 0x80)
        n >>= 7


def record(delta, key, value, headers=()):
    def field(b):
        return varint(-1) if b is None else varint(len(b)) + b

    body = b"\0" + varint(0) + varint(delta) + field(key) + field(value) + varint(len(headers))
    for name, val in headers:
        body += field(name) + field(val)
    return varint(len(body)) + body


def batch(base, records, attributes=0, timestamp=1700000000000, producer=(-1, -1, -1), epoch=0, last_delta=None):
    body = b"".join(record(i, *r) for i, r in enumerate(records))
    delta = len(records) - 1 if last_delta is None else last_delta
    head = struct.pack(">hiqqqhii", attributes, delta, timestamp, timestamp, *producer, len(records))
    rest = struct.pack(">ib", epoch, 2) + b"\0\0\0\0" + head + body
    return seal(struct.pack(">qi", base, len(rest)) + rest)


def replay(lines):
    done = subprocess.run([KAFKA, "replay"], input="\n".join(json.dumps(l) for l in lines) + "\n", text=True,
                          stdout=subprocess.PIPE, check=True)
    return [base64.b64decode(json.loads(l)["ok"]["bytes"]) for l in done.stdout.splitlines()]


def put(case, files):
    path = os.path.join(HERE, case)
    shutil.rmtree(path, ignore_errors=True)
    os.makedirs(path)
    for name, data in files.items():
        with open(os.path.join(path, name), "wb") as f:
            f.write(data)


def get(story, name):
    folder = os.path.join(GOLDEN, story)
    (part,) = [d for d in os.listdir(folder) if os.path.isdir(os.path.join(folder, d))]
    with open(os.path.join(folder, part, name), "rb") as f:
        return f.read()


def whole(story, bases):
    return {f"{b:020}.{kind}": get(story, f"{b:020}.{kind}") for b in bases for kind in ("log", "index", "timeindex")}


def run(case, name, *args):
    """Runs the tool in a copy of the case, because it may write to what it reads."""
    with tempfile.TemporaryDirectory() as work:
        copy = os.path.join(work, case)
        shutil.copytree(os.path.join(HERE, case), copy)
        done = subprocess.run([KAFKA, "dump", *args], cwd=copy, env=ENV, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        err = [l for l in done.stderr.decode().replace(copy, "$DIR").splitlines()
               if not l.startswith(("\tat ", "\t...", "Caused by"))]
    with open(os.path.join(HERE, case, name + ".out"), "wb") as f:
        f.write(done.stdout)
    with open(os.path.join(HERE, case, name + ".cmd"), "w") as f:
        f.write(" ".join(args) + f"\n{done.returncode}\n" + "".join(l + "\n" for l in err))


def logs(case):
    return ",".join(sorted(n for n in os.listdir(os.path.join(HERE, case)) if n.endswith(".log")))


def every(case):
    return ",".join(sorted(n for n in os.listdir(os.path.join(HERE, case)) if n.split(".")[-1] in ("log", "index", "timeindex")))


def others(story, bases):
    """What else a partition has, where it has transactions; the tool is not asked about it."""
    names = [f"{b:020}.{kind}" for b in bases for kind in ("txnindex", "snapshot")] + ["leader-epoch-checkpoint"]
    return {n: get(story, n) for n in names if story == "transactions" and n != f"{Z}.snapshot"}


def golden():
    stories = {}
    for story in ("codec-none", "codec-gzip", "codec-snappy", "codec-lz4", "codec-zstd", "legacy-v0", "legacy-v1", "transactions",
                  "idempotence", "clean-transactions", "clean-plain", "timestamps", "timestamps-none", "sparse", "roll-offsets"):
        folder = os.path.join(GOLDEN, story)
        (part,) = [d for d in os.listdir(folder) if os.path.isdir(os.path.join(folder, d))]
        bases = sorted(int(n[:20]) for n in os.listdir(os.path.join(folder, part)) if n.endswith(".log"))
        stories[story] = [b for b in bases if len(get(story, f"{b:020}.log"))][:1 if story.startswith("codec") else 2]
    for story, bases in stories.items():
        put(story, whole(story, bases) | others(story, bases))
        run(story, "print", "--files", every(story), "--print-data-log")
    run("codec-none", "batches", "--files", every("codec-none"))
    run("codec-lz4", "deep", "--files", logs("codec-lz4"), "--deep-iteration")
    run("codec-lz4", "bare", "--files", logs("codec-lz4"), "--print-data-log", "--skip-record-metadata")
    run("codec-lz4", "bare-deep", "--files", logs("codec-lz4"), "--deep-iteration", "--skip-record-metadata")
    run("codec-lz4", "verify", "--files", every("codec-lz4"), "--verify-index-only")
    run("codec-lz4", "sanity", "--files", every("codec-lz4"), "--index-sanity-check")
    run("codec-lz4", "max-bytes", "--files", logs("codec-lz4"), "--max-bytes=2500")
    run("codec-lz4", "max-bytes-zero", "--files", logs("codec-lz4"), "--max-bytes", "0")
    run("codec-lz4", "max-bytes-negative", "--files", logs("codec-lz4"), "--max-bytes", "-1")
    run("codec-lz4", "max-bytes-word", "--files", logs("codec-lz4"), "--max-bytes", "many")
    run("codec-lz4", "max-message-size", "--files", every("codec-lz4"), "--max-message-size", "100")
    run("codec-lz4", "argument-ignored", "stray", "--files", logs("codec-lz4"))
    run("codec-lz4", "no-files", "--deep-iteration")
    run("codec-lz4", "unknown-option", "--files", "x.log", "--fast")
    run("codec-lz4", "files-twice", "--files", "x.log", "--files", "y.log")
    run("codec-lz4", "files-empty", "--files")
    run("codec-lz4", "version", "--version")
    run("codec-lz4", "odd-paths", "--files", f".//{Z}.log,,x.foo,nodot,./,{Z}.log.deleted,{Z}.log,,")
    run("codec-lz4", "missing-log", "--files", f"{'9' * 18}00.log,{Z}.log")
    run("codec-lz4", "no-number", "--files", f"a.log,{Z}.log")
    run("codec-lz4", "missing-index", "--files", f"{Z}.log,00000000000000000007.index")
    run("transactions", "bare", "--files", logs("transactions"), "--print-data-log", "--skip-record-metadata")
    run("legacy-v1", "bare", "--files", logs("legacy-v1"), "--print-data-log", "--skip-record-metadata")
    run("legacy-v1", "batches", "--files", every("legacy-v1"))


def contents():
    odd = [(b"k", b"v"), (b"k", None), (None, b"v"), (None, None), (b"", b""),
           (b"line\nbreak", b"tab\tand\0nul"), (b"\xff\xfe", b"a\xed\xa0\x80b\xed\xa0c\xedd"), ("ключ".encode(), "naïve €𝄞".encode()),
           (b"cut", b"\xf0\x9d\x84"), (b"cut", b"\xe2\x82"), (b"over", b"\xc0\xaf\xe0\x80\xaf\xf4\x90\x80\x80"), (b"surrogate", b"\xed\xa0")]
    heads = [(b"h", b"v", [(b"h", b"1"), (b"h", None), (b"", b"")]), (None, b"v", [(b"\xc3\x28", b"")])]
    put("contents", {f"{Z}.log": batch(0, odd) + batch(len(odd), heads)})
    run("contents", "print", "--files", f"{Z}.log", "--print-data-log")
    run("contents", "bare", "--files", f"{Z}.log", "--print-data-log", "--skip-record-metadata")
    put("contents-base-7", {"00000000000000000007.log": batch(7, odd[:1]) + batch(9, odd[:1]) + batch(3, odd[:2])
                            + batch(5, [], last_delta=3) + batch(20, odd[:1], attributes=0x08 | 0x80)
                            + batch(21, odd[:1], attributes=0x40) + batch(30, odd[:2], producer=(9, 1, 2147483647))
                            + batch(33, odd[:2], producer=(9, 1, -7)) + batch(40, odd[:1], last_delta=-2)})
    run("contents-base-7", "print", "--files", "00000000000000000007.log", "--print-data-log")


def control():
    kinds = ["leader_change", "snapshot_header", "snapshot_footer", "kraft_version", "voters"]
    made = replay([{"op": "kraft", "kind": k, "offset": i, "timestamp": 1700000000000, "leaderEpoch": 3} for i, k in enumerate(kinds)]
                  + [{"op": "marker", "kind": k, "producerId": 5, "producerEpoch": 1, "coordinatorEpoch": 7, "timestamp": 10, "offset": 5 + i}
                     for i, k in enumerate(["commit", "abort"])])
    put("control", {f"{Z}.log": b"".join(made)})
    run("control", "print", "--files", f"{Z}.log", "--print-data-log")
    run("control", "bare", "--files", f"{Z}.log", "--print-data-log", "--skip-record-metadata")
    key = lambda kind, version=0: struct.pack(">hh", version, kind)
    voters = struct.pack(">hi", 1, 2) + b"\x02" + struct.pack(">i", 2) + b"\0" + b"\x01" + b"\0"
    values = {
        "unknown": [(key(9), b"x"), (key(-3), None)],
        "newer-key": [(key(0, 3) + b"more", struct.pack(">hi", 2, 8) + b"more")],
        "old-key": [(key(0, -1), struct.pack(">hi", 0, 8))],
        "short-key": [(b"\0\0\0", struct.pack(">hi", 0, 8))],
        "null-key": [(None, struct.pack(">hi", 0, 8))],
        "marker-version": [(key(1), struct.pack(">hi", -1, 8))],
        "marker-short": [(key(1), b"\0\0\0")],
        "marker-null": [(key(1), None)],
        "leader-one": [(key(2), voters)],
        "leader-two": [(key(2), b"\0\2" + voters[2:])],
        "leader-minus": [(key(2), b"\xff\xff" + voters[2:])],
        "leader-schema-one": [(key(2), struct.pack(">hi", 1, 2) + b"\x02" + struct.pack(">i", 2) + bytes(range(16)) + b"\0\x01\0")],
        "leader-null-voters": [(key(2), struct.pack(">hi", 0, 2) + b"\0\x01\0")],
        "leader-short": [(key(2), voters[:9])],
        "leader-more": [(key(2), voters + b"more")],
        "leader-tags": [(key(2), voters[:-1] + b"\x01\x05\x02ab")],
        "header-null": [(key(3), None)],
        "footer-five": [(key(4), b"\0\5\0")],
        "version-minus": [(key(5), b"\0\0\xff\xff\0")],
        "voters-odd": [(key(6), b"\0\0\x02" + struct.pack(">i", -1) + b"\xff" * 16 + b"\x03" + b"\x04a\"\\" + b"\x02h" + b"\xff\xff\0"
                        + b"\x01" + "\x05\u00e9h".encode()[:0] + b"\x04\xc3\xa9\n" + b"\0\0\0" + struct.pack(">hh", 0, 1) + b"\0\0\0")],
    }
    for name, records in values.items():
        put(f"control-{name}", {f"{Z}.log": batch(0, records, attributes=0x30, producer=(5, 1, -1)) + batch(len(records), [(b"k", b"v")])})
        run(f"control-{name}", "print", "--files", f"{Z}.log", "--print-data-log")
    put("control-data", {f"{Z}.log": batch(0, [(b"k", b"v")], attributes=0x20)})
    run("control-data", "print", "--files", f"{Z}.log", "--print-data-log")


def damage():
    log = get("codec-none", f"{Z}.log")[:]
    plain = [(b"key", b"value %d" % i) for i in range(3)]
    log = b"".join(batch(3 * i, plain, timestamp=1700000000000 + i) for i in range(4))
    size = len(log) // 4
    lz4 = get("codec-lz4", f"{Z}.log")
    lz4_size = 12 + struct.unpack(">i", lz4[8:12])[0]
    v1 = get("legacy-v1", f"{Z}.log")

    def at(data, position, new):
        return data[:position] + new + data[position + len(new):]

    second = lambda change: log[:size] + change(log[size:2 * size]) + log[2 * size:]
    legacy_crc = lambda m: m[:12] + struct.pack(">I", __import__("zlib").crc32(m[16:])) + m[16:]
    stub = lambda length, magic, attrs=0: legacy_crc(struct.pack(">qi", 3, length) + b"\0\0\0\0" + bytes([magic & 255, attrs]) + b"\0" * (length - 6))
    cases = {
        "zeros-17": log + b"\0" * 17,
        "zeros-18": log + b"\0" * 18,
        "cut-5": log[:-5],
        "cut-header": log[:3 * size + 30],
        "junk-10": log + bytes(range(10)),
        "empty": b"",
        "tiny": log[:17],
        "magic-9": second(lambda b: at(b, 16, b"\x09")),
        "magic-minus": second(lambda b: at(b, 16, b"\xff")),
        "magic-0": second(lambda b: at(b, 16, b"\0")),
        "magic-1": second(lambda b: at(b, 16, b"\x01")),
        "codec-7": second(lambda b: seal(at(b, 21, b"\0\x07"))),
        "codec-gzip": second(lambda b: seal(at(b, 21, b"\0\x01"))),
        "size-13": second(lambda b: at(b, 8, struct.pack(">i", 13))),
        "size-minus": second(lambda b: at(b, 8, struct.pack(">i", -1))),
        "size-huge": second(lambda b: at(b, 8, struct.pack(">i", 2147483647))),
        "size-20-middle": log[:size] + at(log[size:], 8, struct.pack(">i", 20)),
        "size-20-end": log + at(log[:32], 8, struct.pack(">i", 20)),
        "size-49": log + seal(at(log[:61], 8, struct.pack(">i", 49))),
        "flip-crc": second(lambda b: at(b, 17, bytes([b[17] ^ 1]))),
        "flip-value": second(lambda b: at(b, 75, b"V")),
        "flip-length": second(lambda b: at(b, 61, bytes([b[61] ^ 2]))),
        "count-more": second(lambda b: seal(at(b, 57, struct.pack(">i", 4)))),
        "count-less": second(lambda b: seal(at(b, 57, struct.pack(">i", 2)))),
        "count-minus": second(lambda b: seal(at(b, 57, struct.pack(">i", -1)))),
        "flip-compressed": at(lz4, lz4_size + 90, bytes([lz4[lz4_size + 90] ^ 0x55])),
        "flip-lz4-magic": at(lz4, lz4_size + 61, b"\0"),
        "legacy-flip": at(v1, 40, b"X"),
        "legacy-stub-v0": stub(14, 0) + log,
        "legacy-stub-v1-14": stub(14, 1) + log,
        "legacy-stub-v1-21": stub(21, 1) + log,
        "legacy-stub-v1-end": log + stub(14, 1),
        "legacy-stub-minus": stub(30, -1) + log,
        "legacy-wrapper-empty": stub(22, 1, 1) + log,
        "legacy-codec-7": stub(22, 1, 7) + log,
    }
    for name, data in cases.items():
        put(f"damaged-{name}", {f"{Z}.log": data})
        run(f"damaged-{name}", "batches", "--files", f"{Z}.log,x.foo")
        run(f"damaged-{name}", "print", "--files", f"{Z}.log,x.foo", "--print-data-log")
    run("damaged-cut-5", "max-bytes", "--files", f"{Z}.log", "--max-bytes", str(2 * size + 20))
    run("damaged-zeros-18", "max-bytes", "--files", f"{Z}.log", "--max-bytes", str(4 * size))


def indexes():
    log = b"".join(batch(10 * i, [(None, b"x" * 80)] * 10, timestamp=1000 + i) for i in range(12))
    size = len(log) // 12
    off = lambda *pairs: b"".join(struct.pack(">ii", o, p) for o, p in pairs)
    tim = lambda *pairs: b"".join(struct.pack(">qi", t, o) for t, o in pairs)
    good = off((59, 5 * size), (109, 10 * size))
    times = tim((1005, 59), (1010, 109), (1011, 119))
    cases = {
        "good": (good, times),
        "empty": (b"", b""),
        "preallocated": (good + b"\0" * 64, times + b"\0" * 120),
        "preallocated-empty": (b"\0" * 64, b"\0" * 120),
        "length-11": (good[:11], times[:17]),
        "length-5": (good[:5], times[:5]),
        "wrong-offset": (off((59, 5 * size), (108, 10 * size)), times),
        "wrong-position": (off((59, 5 * size), (109, 9 * size)), times),
        "descending": (off((109, 10 * size), (59, 5 * size)), times),
        "sorted-findings": (off((21, 2 * size), (81, 8 * size), (91, 9 * size)), times),
        "same-offset": (off((21, 2 * size), (21, 9 * size)), times),
        "negative-offset": (off((59, 5 * size), (-3, 10 * size)), times),
        "at-the-end": (off((59, 5 * size), (119, 12 * size)), times),
        "behind-the-end": (off((59, 5 * size), (119, 12 * size + 1)), times),
        "negative-position": (off((59, 5 * size), (109, -8)), times),
        "inside-a-batch": (off((59, 5 * size + 70), (109, 10 * size)), times),
        "time-mismatch": (good, tim((1005, 59), (1009, 109), (1011, 119))),
        "time-order": (good, tim((1010, 109), (1005, 59), (1005, 59), (1011, 119))),
        "time-not-found": (good, tim((1005, 58), (1010, 109), (1011, 500))),
        "time-not-last": (good, tim((1005, 59), (1010, 102), (1001, 119), (1012, 119))),
        "time-negative": (good, tim((1005, 59), (-5, -3))),
    }
    for name, (index, timeindex) in cases.items():
        case = f"index-{name}"
        put(case, {f"{Z}.log": log, f"{Z}.index": index, f"{Z}.timeindex": timeindex})
        files = [f"{Z}.index", f"{Z}.timeindex"]
        for kind in ("index", "timeindex"):
            run(case, f"{kind}-dump", "--files", f"{Z}.{kind}")
            run(case, f"{kind}-verify", "--files", f"{Z}.{kind}", "--verify-index-only")
            run(case, f"{kind}-sanity", "--files", f"{Z}.{kind}", "--index-sanity-check")
    case = "index-zero-tailed-log"
    put(case, {f"{Z}.log": log + b"\0" * 40, f"{Z}.index": good, f"{Z}.timeindex": times})
    run(case, "index-dump", "--files", f"{Z}.index")
    run(case, "timeindex-dump", "--files", f"{Z}.timeindex")
    case = "index-alone"
    put(case, {f"{Z}.index": good, "00000000000000000007.timeindex": times, "00000000000000000007.log": log, "abc.index": good})
    run(case, "no-log", "--files", f"{Z}.index")
    run(case, "no-index", "--files", "00000000000000000007.timeindex")
    run(case, "no-number", "--files", "abc.index")
    case = "index-base-100"
    B = "00000000000000000100"
    put(case, {f"{B}.log": b"".join(batch(100 + 10 * i, [(None, b"x" * 80)] * 10, timestamp=1000 + i) for i in range(12)),
               f"{B}.index": good + b"\0" * 8, f"{B}.timeindex": times + b"\0" * 12})
    run(case, "all", "--files", every(case), "--deep-iteration")
    run(case, "absolute", "--files", f"{B}.index,{B}.timeindex", "--verify-index-only")


golden()
contents()
control()
damage()
indexes()
