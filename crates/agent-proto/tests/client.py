"""A client for the protocol of docs/agent-protocol.md, written from that page alone. Modes:

    client.py decode                 frames on standard input to a line of JSON for each payload
    client.py encode                 lines of JSON to frames
    client.py agent SOCKET ROUNDS    an agent: answers hello and shrink, sends ROUNDS statistics
    client.py host SOCKET ROUNDS     a host: prints messages of an agent until ROUNDS statistics came
"""
import json
import socket
import struct
import sys
import time
import zlib

MAGIC = b"\xf5BAL"
PAYLOAD_MAX = 16384


def frame(message):
    payload = json.dumps(message, separators=(",", ":"), ensure_ascii=False).encode()
    fields = struct.pack("<BBH", 1, 0, len(payload))
    return MAGIC + fields + struct.pack("<I", zlib.crc32(fields + payload)) + payload


class Reader:
    def __init__(self):
        self.held = b""

    def push(self, data):
        """Adds bytes; returns the payloads that are complete."""
        self.held += data
        payloads = []
        while True:
            at = self.held.find(MAGIC[:1])
            self.held = self.held[at:] if at >= 0 else b""
            invalid, size = self.front()
            if invalid:
                self.held = self.held[1:]
            elif size is None:
                return payloads
            else:
                payloads.append(json.loads(self.held[12:size]))
                self.held = self.held[size:]

    def front(self):
        """Returns whether the buffer starts with an invalid frame; else the frame's size, once complete."""
        held = self.held
        if not held.startswith(MAGIC[: len(held)]):
            return True, None
        if len(held) < 12:
            return False, None
        version, zero, size, crc = struct.unpack("<BBHI", held[4:12])
        payload = held[12 : 12 + size]
        if version != 1 or zero != 0 or not 0 < size <= PAYLOAD_MAX:
            return True, None
        if MAGIC[:1] in payload or MAGIC in held[1:15]:
            return True, None
        if len(payload) < size:
            return False, None
        return crc != zlib.crc32(held[4:8] + payload), 12 + size


def talk(link, reader):
    data = link.recv(65536)
    if not data:
        sys.exit(0)
    return reader.push(data)


def agent(path, rounds):
    link, reader, seq, born = socket.socket(socket.AF_UNIX), Reader(), 0, time.monotonic()
    link.connect(path)

    def say(kind, /, **fields):
        nonlocal seq
        seq += 1
        uptime = int((time.monotonic() - born) * 1000)
        link.sendall(frame({"seq": seq, "uptime_ms": uptime, "message": {"type": kind, **fields}}))

    who = dict(version=1, oldest=1, instance=time.time_ns() >> 12, agent="client.py", system="test",
               page_bytes=4096, capabilities=["statistics", "shrink"], shrinkers=["wind"])
    link.sendall(b"the end of an older conver\xf5BAL\x01\x00\x40\x00")
    say("hello", session=0, **who)
    while True:
        for message in (it["message"] for it in talk(link, reader)):
            if message["type"] == "hello":
                say("hello", session=message["session"], **who)
                for number in range(rounds):
                    memory = {"total_bytes": 1 << 30, "free_bytes": number << 20}
                    say("statistics", memory=memory, counters={"major_faults": number})
                why = {"rule": "free-falling", "text": "a test"}
                say("request", number=1, kind="more", bytes=1 << 20, why=why)
            elif message["type"] == "shrink":
                order = message["number"]
                say("shrinking", number=order, offers=[{"shrinker": "wind", "can_give_bytes": 5}])
                given = [{"shrinker": "wind", "gave_bytes": 5}]
                say("shrunk", number=order, gave_bytes=5, given=given)


def host(path, rounds):
    listener, reader, seen = socket.socket(socket.AF_UNIX), Reader(), 0
    listener.bind(path)
    listener.listen()
    link, _ = listener.accept()
    hello = dict(type="hello", version=1, oldest=1, session=4711, statistics_ms=100, emergency_ms=1000)
    link.sendall(frame({"seq": 1, "message": hello}))
    while seen < rounds:
        for said in talk(link, reader):
            print(json.dumps(said), flush=True)
            seen += said["message"]["type"] == "statistics"


if __name__ == "__main__":
    if sys.argv[1] == "decode":
        for one in Reader().push(sys.stdin.buffer.read()):
            print(json.dumps(one))
    elif sys.argv[1] == "encode":
        for line in sys.stdin:
            sys.stdout.buffer.write(frame(json.loads(line)))
    else:
        {"agent": agent, "host": host}[sys.argv[1]](sys.argv[2], int(sys.argv[3]))
