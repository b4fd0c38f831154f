# SPDX-License-Identifier: GPL-2.0-or-later
"""The tables of events, commands and status are those of their senders."""
import json
import re
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts" / "lib"))

from ehcalab import consumer, events, scenario, timeline  # noqa: E402
from ehcalab.values import Where  # noqa: E402

DRIVER = ROOT / "guest-driver"
CONSUMER = DRIVER / "apm_traffic"
DOCS = ROOT / "docs"
# Where the name of an event is not written out: what it can be.
PORT_EVENTS = {"port_err", "port_active", "lid_change", "sm_change",
               "client_reregister", "pkey_change", "gid_change",
               "device_fatal"}
SA_GID, SA_TRAP = {"sa_gid_in", "sa_gid_out"}, {"sa_subscribed",
                                               "sa_unsubscribed"}
QP_EVENTS = {"comm_est", "path_mig_err", "sq_drained", "qp_error"}


def strings(text: str) -> str:
    """The string literals in a piece of C, put together."""
    return "".join(s.replace('\\"', '"') for s in
                   re.findall(r'"((?:[^"\\]|\\.)*)"', text))


def keys(form: str) -> dict[str, str]:
    """The fields in a format of JSON: name -> conversion."""
    return dict(re.findall(r'"(\w+)":("?%[^,}]*)', form)) | {
        name: '"' for name in re.findall(r'"(\w+)":"[^%"]', form)}


def calls(path: Path, function: str) -> list[str]:
    """The arguments of each call of a function, as text."""
    found = []
    text = path.read_text()
    for start in re.finditer(rf"\b{function}\(", text):
        depth, at, quoted = 1, start.end(), False
        while depth:
            char = text[at]
            if char == '"' and text[at - 1] != "\\":
                quoted = not quoted
            depth += 0 if quoted else {"(": 1, ")": -1}.get(char, 0)
            at += 1
        found.append(text[start.end():at - 1])
    return found


def rows(path: Path, title: str) -> dict[str, list[str]]:
    """The cells of a manual's table by the names in the first one."""
    text = path.read_text().split(f"\n{title}")[1].split("\n## ")[0]
    found = {}
    for line in text.splitlines():
        if line.startswith("| `"):
            cells = line.replace("\\|", "/").split("|")
            for name in re.findall(r"`(\w+)`", cells[1]):
                found[name] = cells[2:-1]
    return found


def numbers(path: Path) -> dict[str, int]:
    """The #defines of a header that are numbers."""
    found = {"U64_MAX": 2 ** 64 - 1, "S64_MAX": 2 ** 63 - 1}
    for name, value in re.findall(
            r"#define (\w+)\s+((?:BIT)?[\d()<U ]+?)\s*(?:/\*.*)?$",
            path.read_text(), re.M):
        value = value.replace("U", "").replace("BIT(", "(1 << ")
        found[name] = eval(value)             # pylint: disable=W0123
    return found


class Events(unittest.TestCase):
    """events.py against the sources and the manuals."""

    def consumer_sends(self) -> dict[str, dict[str, str]]:
        sent: dict[str, dict[str, str]] = {}
        for path in CONSUMER.glob("*.c"):
            if path.name == "event.c":
                texts = calls(path, "at_event")[1:]     # [0] is its own
            else:
                texts = calls(path, "at_event") + [
                    t.partition(",")[2] for t in calls(path, "at_event_at")
                    if "%pV" not in t]
                # Puts these two before what it is given.
                own = r"""\"qpn\":%u,\"port\":%u,"""
                texts += [f'{name},"{own}"{form}' for name, _, form in (
                    t.partition(",")[2].partition(",")
                    for t in calls(path, "at_conn_event")[1:])]
            for text in texts:
                first = text.partition(",")[0]
                names = set(re.findall(r'"(\w+)"', first))
                form = strings(text.partition(",")[2])
                if not names:
                    names = (QP_EVENTS if '"what"' in form else
                             SA_GID if '"gid"' in form else
                             SA_TRAP if '"trap"' in form else PORT_EVENTS)
                for name in names:
                    sent.setdefault(name, {}).update(keys(form))
        sent["events_lost"] = {"count": "%u"}
        return sent

    def test_consumer_source(self) -> None:
        sent = self.consumer_sends()
        self.assertEqual(set(sent), set(events.CONSUMER))
        for name, found in sent.items():
            fields = events.CONSUMER[name]
            self.assertEqual(set(found) | {"seq"}, set(fields), name)
            for field, conversion in found.items():
                number = not conversion.startswith('"')
                fits = fields[field].fits("1", Where())
                if number:
                    self.assertTrue(fits, f"{name}.{field} is a number")
                elif fields[field].ordered:
                    self.fail(f"{name}.{field} is a text")

    def test_port_and_sa_events(self) -> None:
        text = (CONSUMER / "main.c").read_text()
        names = text.split("at_event_name(")[1].split("\n}\n")[0]
        self.assertEqual(set(re.findall(r'return "(\w+)"', names)),
                         PORT_EVENTS)
        names = text.split("at_sa_event(")[1].split("};")[0]
        self.assertEqual(set(re.findall(r'= "(\w+)"', names)),
                         SA_GID | SA_TRAP)
        names = (CONSUMER / "conn.c").read_text().split(
            "at_on_qp_event(")[1].split("\n}\n")[0]
        self.assertEqual(set(re.findall(r'name = "(\w+)"', names)),
                         QP_EVENTS)

    def test_consumer_manual(self) -> None:
        told = rows(DOCS / "consumer.md", "## Events")
        self.assertEqual(set(told), set(events.CONSUMER))
        for name, cells in told.items():
            told_of = set(re.findall(r"`(\w+)`", cells[0]))
            for field in set(events.CONSUMER[name]) - {"seq", "qpn", "port"}:
                if name not in ("auto", "events_lost"):
                    self.assertIn(field, told_of, name)
            for field, words in re.findall(
                    r"`(\w+)` \(((?:`\w+`(?:, )?)+)\)", cells[0]):
                for word in re.findall(r"`(\w+)`", words):
                    self.assertTrue(events.CONSUMER[name][field].fits(
                        word, Where()), f"{name} {field}={word}")

    def test_subnet_manager(self) -> None:
        sent = {}
        for path in (ROOT / "sm").glob("*.c"):
            for text in calls(path, "sm_eventf"):
                form = strings(text)
                name = re.search(r'"event":"(\w+)"', form)
                if name:
                    sent[name.group(1)] = set(re.findall(
                        r'"(\w+)":', form)) - {"event"}
        self.assertEqual(sent, {name: set(fields) for name, fields
                                in events.SM.items()})

    def test_adapter(self) -> None:
        text = (ROOT / "hw" / "ehca" / "engine" / "events.c").read_text()
        sent = set(re.findall(r'\[EHCA_EVENT_\w+\] = "([a-z0-9_]+)"', text))
        self.assertEqual(sent | {"events_lost"}, set(events.ADAPTER))
        causes = set(re.findall(r'\[EHCA_CAUSE_\w+\] = "(\w+)"', text))
        for cause in causes - {"none"}:
            self.assertTrue(events.KINDS["cause"].fits(cause, Where()))
        fields = set(re.findall(r'\\"(\w+)\\":', text)) - {"event", "t_ns"}
        self.assertEqual(fields | {"count"}, {
            f for one in events.ADAPTER.values() for f in one})
        told = rows(DOCS / "device.md", "## Events for the timeline")
        for name, cells in told.items():
            self.assertEqual(set(re.findall(r"`(\w+)`", cells[0])),
                             set(events.ADAPTER[name]), name)

    def test_fabric(self) -> None:
        text = (ROOT / "fabric" / "events.c").read_text()
        fields = set(re.findall(r'(?:json_)?add_\w+\(b, "(\w+)"', text))
        envelope = {"event", "monotonic_ns", "seq", "seconds",
                    "microseconds"}
        self.assertEqual(fields - envelope, {
            f for one in events.FABRIC.values() for f in one})
        told = rows(DOCS / "fabric.md", "## Events")
        for name, cells in told.items():
            if name in ("NODE_EVENT", "TRAP"):
                continue
            words = re.sub(r"\([^)]*\)", "", cells[0])
            self.assertEqual(set(events.FABRIC[name.lower()])
                             - set(re.findall(r"`(\w+)`", words)), set(),
                             name)
        self.assertEqual(set(events.FABRIC["trap"]),
                         set(events.FABRIC["mad"]) | {"lid"})

    def words(self, path: str, start: str) -> set[str]:
        """The strings of a C function or table."""
        text = (ROOT / path).read_text().split(start)[1]
        return set(re.findall(r'"([^"]+)"', re.split(r"\n};?\n", text)[0]))

    def test_choices(self) -> None:
        for kind, path, start in (
                ("mig", "guest-driver/apm_traffic/conn.c",
                 "char *at_mig_str("),
                ("qp_state", "guest-driver/apm_traffic/conn.c",
                 "char *at_qps_str("),
                ("qp_state", "hw/ehca/engine/qp.c",
                 "char *ehca_qp_state_name("),
                ("mig", "hw/ehca/engine/apm.c",
                 "char *ehca_mig_state_name("),
                ("rail", "guest-driver/apm_traffic/conn.c",
                 "at_rail_names[] = {"),
                ("message", "guest-driver/apm_cm/cm_msg.c",
                 "cm_msg_names[] = {"),
                ("drop", "fabric/fabric.c", "drop_names["),
                ("speed", "fabric/topology.c", "}, speeds[] = {"),
                ("sm_state", "sm/sm.c", "*sm_state_name(")):
            known = {w.lower() for w in events.KINDS[kind].choices(Where())}
            found = {w.lower() for w in self.words(path, start)}
            self.assertEqual(found - {"none", "unknown"},
                             known - {"unknown"}, start)

    def test_runner(self) -> None:
        self.assertEqual(set(events.RUNNER["driver_loaded"]),
                         set(scenario.PARAMETERS))

    def test_scenario_manual(self) -> None:
        text = (DOCS / "scenarios.md").read_text().split(
            "## Events by source")[1].split("\n## ")[0]
        told = {line.split("|")[1].strip(): set(re.findall(
            r"`([a-z_0-9]+)`", line.split("|")[2])) for line in
            text.splitlines() if line.startswith("| ")}
        self.assertEqual(told["a guest"], set(events.RUNNER))
        self.assertEqual(told["`GUEST/hca`"], set(events.ADAPTER))
        self.assertEqual(told["`fabric`"], set(events.FABRIC))

    def test_timeline_words(self) -> None:
        self.assertEqual(set(timeline.GUEST)
                         - set(events.CONSUMER) - set(events.RUNNER), set())
        self.assertEqual(set(timeline.HCA) - set(events.ADAPTER), set())
        self.assertEqual(set(timeline.FABRIC) - set(events.FABRIC), set())
        self.assertEqual(set(timeline.SM) - set(events.SM), set())


class Consumer(unittest.TestCase):
    """consumer.py against the module's source and manual."""

    def test_commands(self) -> None:
        text = (CONSUMER / "cmd.c").read_text().split("int at_cmd_parse(")[1]
        limits = numbers(CONSUMER / "at.h") | {"sizeof(cmd->p.dev)": 64}
        found = {}
        for part in text.split("if (!strcmp(verb, ")[1:]:
            verb = part.split('"')[1]
            second = {"traffic": ["start"], "bench": ["write"]}.get(verb, [""])
            for more in second:
                found[f"{verb} {more}".strip()] = part.split(
                    "at_parse_words")[0] if verb != "traffic" else part
        found["traffic stop"] = ""
        self.assertEqual(set(found), set(consumer.COMMANDS))
        for verb, part in found.items():
            words = re.findall(
                r'\{ "(\w+)", (ATV_\w+)(?:, ([^,]+), ([^,]+))?,([^}]*)\}',
                part)
            table = {n.rstrip("!"): k for n, k in
                     consumer.COMMANDS[verb].items()}
            self.assertEqual({w[0] for w in words}, set(table), verb)
            for name, kind, low, high, rest in words:
                self.assertEqual("required" in rest,
                                 f"{name}!" in consumer.COMMANDS[verb], name)
                if kind in ("ATV_U32", "ATV_U64", "ATV_RATE"):
                    self.limits(table[name], *(
                        limits.get(v.strip()) if v.strip() in limits
                        else int(v, 0) for v in (low, high)))

    def limits(self, kind: consumer.Kind, low: int, high: int) -> None:
        """A kind takes what is within limits, and nothing else."""
        where = Where(high)            # a port's limit is the topology's
        for value, good in ((low, True), (low - 1, False), (high, True),
                            (high + 1, False)):
            self.assertEqual(kind.fits(str(value), where), good,
                             (kind.words, value))
        self.assertTrue(kind.fits(hex(max(low, 1)), where))
        self.assertFalse(kind.fits("0" + str(max(low, 1)), where))

    def test_choices(self) -> None:
        text = (CONSUMER / "cmd.c").read_text()
        tables = {name: set(re.findall(r'"(\w+)"', words)) for name, words in
                  re.findall(r"at_(\w+)\[\] = \{(.*?)NULL", text, re.S)}
        for verb, name, table in (
                ("auto", "lap", "off_on"), ("auto", "apr", "accept_reject"),
                ("traffic start", "dir", "dirs"),
                ("traffic start", "op", "ops"), ("lose", "kind!", "kinds")):
            self.assertEqual(
                set(consumer.COMMANDS[verb][name].choices(Where())),
                tables[table], name)

    def test_command_manual(self) -> None:
        told = re.findall(r"^\| `([^`]*)` \|", (
            DOCS / "consumer.md").read_text().replace("\\|", "/"), re.M)
        for verb, table in consumer.COMMANDS.items():
            line = next(t for t in told if re.match(rf"{verb}( |$)", t))
            words = set(re.findall(r"[ \[](\w+)=", line))
            self.assertEqual(words, {n.rstrip("!") for n in table}, verb)

    def test_status_source(self) -> None:
        text = (CONSUMER / "conn.c").read_text().split(
            "static void at_status_rail(")[1].split(
            "void at_control_status(")[0]
        text += (DRIVER / "apm_cm" / "cm_dev.c").read_text().split(
            "void apm_cm_show_counters(")[1].split("\n}\n")[0]
        # The names of the rails and of the groups of counters.
        found = set(re.findall(r'\\"(\w+)\\":', text)) | set(
            re.findall(r'at_status_rail\(s, "(\w+)"', text)) | set(
            re.findall(r'\[APM_CM_\w+\] = "(\w+)"', text))
        known = {part for key in consumer.STATUS for part in key.split(".")}
        self.assertEqual(found, known - set(
            events.CM_MESSAGE.choices(Where())))

    def test_status_manual(self) -> None:
        text = (DOCS / "consumer.md").read_text().split("## Status")[1]
        block = text.split("\n\n")[1]
        told = json.loads(re.sub(r'(?<!")\.\.', "0", block).replace(
            "{0}", "{}").replace(",0]", "]"))
        ports = told.pop("ports")
        self.assertEqual(set(ports[0]), {"dev", "port", "state", "lid",
                                         "sm_lid", "gid"})
        self.assertEqual(
            {key for key, _ in consumer.flat(told)},
            {key for key in consumer.STATUS
             if not re.match(r"cm_counters\.\w+\.", key)})

    def test_status_choices(self) -> None:
        conn = (CONSUMER / "conn.c").read_text()
        messages = (DRIVER / "apm_cm" / "cm_msg.c").read_text()
        for key, text, start in (
                ("state", conn, "char *at_state_str("),
                ("cm_state", messages, "cm_state_names[] = {"),
                ("lap_state", messages, "cm_lap_state_names[] = {")):
            words = re.findall(r'= "(\w+)"', text.split(start)[1].split(
                "};")[0])
            self.assertEqual(
                set(words), set(consumer.STATUS[key].choices(Where()))
                - {"UNKNOWN"}, key)


class Parameters(unittest.TestCase):
    """`load` gives its parameters to ib_ehca."""

    def test_source(self) -> None:
        found = {}
        for path in (DRIVER / "ib_ehca").glob("*.c"):
            found.update(re.findall(
                r"module_param(?:_named)?\((\w+),(?: \w+,)? (\w+), \d+\)",
                path.read_text()))
        self.assertEqual(set(found), set(scenario.PARAMETERS))
        self.assertEqual(set(found.values()), {"uint"})

    def test_faults(self) -> None:
        text = (ROOT / "fabric" / "command.c").read_text()
        call = text.split('.name = "fault"')[-1] if \
            '.name = "fault"' in text else text.split('"fault",')[1]
        words = set(re.findall(r'\{ "([\w-]+)", ARG_NUMBER',
                               call.split("} },")[0]))
        self.assertEqual(words, set(scenario.FAULTS))


if __name__ == "__main__":
    unittest.main()
