"""Conditions on machines: what they mean by hand, and that what nobody knows is never a yes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.errors import UsageError
from fleet.nodes.answer import Fit, Unfit
from fleet.nodes.constraints import KNOWN_FACTS, Constraint, MachineFacts, meets, meets_all, parse_constraint
from fleet.nodes.node import Node, NodeName

NODE = Node(name=NodeName("mini-1"), address="h", tags=("lab", "quiet"))
REPORT = {
    "chip": "Apple M4 Max",
    "cpu_cores": 16,
    "gpu_cores": 40,
    "memory_bytes": 64 << 30,
    "os_name": "macOS",
    "os_version": "26.3",
    "os_build": "25D125",
    "ssd": "APPLE SSD AP1024Z",
}
FACTS = MachineFacts.from_report(REPORT)


@pytest.mark.parametrize(
    ("text", "met"),
    [
        ("chip = m4*", True),
        ("chip = Apple M4 Max", True),
        ("chip = M4", False),
        ("chip != m5*", True),
        ("memory_gb >= 64", True),
        ("memory_gb > 64", False),
        ("memory_gb<64.5", True),
        ("gpu_cores = 40", True),
        ("gpu_cores == 40", True),
        ("gpu_cores != 40", False),
        ("cpu_cores <= 16", True),
        ("tag = lab", True),
        ("tag != lab", False),
        ("tag = qui*", True),
        ("tag != fast", True),
        ("name != mini-3", True),
        ("name = MINI-?", True),
        ("os = macos 26.*", True),
        ("os_build = 25d125", True),
        ("ssd = *AP1024*", True),
    ],
)
def test_each_operator_means_what_it_says(text, met):
    assert isinstance(meets(parse_constraint(text), NODE, FACTS), Fit) is met


def test_a_no_says_what_is_and_what_was_asked_for():
    assert meets(parse_constraint("memory_gb >= 96"), NODE, FACTS) == Unfit(
        reason="memory_gb of mini-1 is 64; asked for: memory_gb >= 96"
    )
    assert meets(parse_constraint("tag = fast"), NODE, FACTS) == Unfit(
        reason="tag of mini-1 is lab, quiet; asked for: tag = fast"
    )


@pytest.mark.parametrize("facts", [None, MachineFacts()])
@pytest.mark.parametrize("text", ["memory_gb >= 1", "memory_gb != 1", "chip = *", "chip != m4*"])
def test_a_fact_that_nobody_knows_is_a_no_with_advice(text, facts):
    answer = meets(parse_constraint(text), NODE, facts)
    assert isinstance(answer, Unfit)
    assert f"{text.split()[0]} of mini-1 is not known yet (fleet up mini-1" in answer.reason


def test_name_and_tags_are_known_without_a_report():
    wanted = [parse_constraint("name = mini*"), parse_constraint("tag = lab")]
    assert meets_all(wanted, NODE, None) == Fit()
    assert isinstance(meets_all([*wanted, parse_constraint("chip = m1")], NODE, FACTS), Unfit)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("memory >= 64", "unknown fact 'memory'; did you mean 'memory_gb'? known are: name, tag, chip"),
        ("chip >= m4", "chip is a text, which has no order"),
        ("gpu_cores = 4*", "gpu_cores is a number, '4*' is none"),
        ("memory_gb >= 64 GB", "no unit"),
        ("memory_gb >= nan", "is none"),
        ("chip", "expected FACT OPERATOR VALUE"),
        ("chip =", "expected FACT OPERATOR VALUE"),
        ("", "expected FACT OPERATOR VALUE"),
    ],
)
def test_a_mistake_is_named_with_what_is_allowed(text, expected):
    with pytest.raises(UsageError) as caught:
        parse_constraint(text, where="study.toml")
    assert expected in str(caught.value)
    assert str(caught.value).startswith("study.toml: ")


_SIGNS = st.sampled_from(["=", "!=", ">=", "<=", ">", "<", "=="])
_WANTED = st.one_of(st.text(max_size=9), st.integers(0, 10**10).map(str), st.decimals(0, 999, places=4).map(str))


@given(
    st.one_of(st.text(max_size=30), st.builds("{} {} {}".format, st.sampled_from(KNOWN_FACTS), _SIGNS, _WANTED)),
)
def test_any_text_is_a_condition_that_reads_back_or_a_usage_error(text):
    try:
        constraint = parse_constraint(text)
    except UsageError:
        return
    assert parse_constraint(str(constraint)) == constraint
    assert isinstance(meets(constraint, NODE, FACTS), Fit | Unfit)


@given(st.dictionaries(st.sampled_from(sorted(REPORT)), st.one_of(st.none(), st.booleans(), st.text(), st.integers())))
def test_a_report_of_anything_gives_facts(report):
    facts = MachineFacts.from_report(report)
    assert meets(Constraint(fact="gpu_cores", operator=">=", value=0.0), NODE, facts)
