"""Templates that would exhaust a renderer's time, memory or stack: each must be refused.
jinja2 itself does not refuse most of them."""

DOUBLE = (
    "{% set ns = namespace(x=START) %}{% for i in range(64) %}{% set ns.x = MORE %}{% endfor %}"
)


def doubled(start, more, use):
    return DOUBLE.replace("START", start).replace("MORE", more) + use


def often(body, times="range(99999)"):
    return f"{{% for i in {times} %}}{{% for j in {times} %}}{body}{{% endfor %}}{{% endfor %}}"


BIG = "{% set big = 'a' * 100000 %}"

HOSTILE = dict(
    loops=often("x"),
    loops_without_output=often("{% if 0 %}{% endif %}"),
    loops_of_an_empty_body=often(""),
    loops_over_a_range_in_a_range=often(often("")),
    output_of_a_long_text="{% for i in range(99999) %}{{ 'x' * 100000 }}{% endfor %}",
    repeated_text="{{ 'x' * 10000000000 }}",
    repeated_text_twice="{{ 'x' * 3000000000 * 3000000000 * 3000000000 }}",
    repeated_list="{{ ([0] * 10000000000) | length }}",
    repeated_list_to_the_end="{{ [1, 2] * 9223372036854775807 }}",
    doubled_text=doubled("'x'", "ns.x ~ ns.x", "{{ ns.x | length }}"),
    doubled_text_by_plus=doubled("'x'", "ns.x + ns.x", "{{ ns.x | length }}"),
    doubled_list=doubled("[0]", "ns.x + ns.x", "{{ ns.x | length }}"),
    doubled_by_replace=doubled("'x'", "ns.x | replace('x', 'xx')", "{{ ns.x | length }}"),
    doubled_by_join=doubled("'xx'", "ns.x | join(ns.x)", "{{ ns.x | length }}"),
    doubled_by_format=doubled("'x'", "'%s%s' % (ns.x, ns.x)", "{{ ns.x | length }}"),
    doubled_by_a_block=doubled("'x'", "ns.x", "")
    + "{% set ns = namespace(x='x') %}{% for i in range(64) %}{% set y %}{{ ns.x }}{{ ns.x }}"
    "{% endset %}{% set ns.x = y %}{% endfor %}{{ ns.x | length }}",
    tree_printed=doubled("[0]", "[ns.x, ns.x]", "{{ ns.x }}"),
    tree_as_json=doubled("[0]", "[ns.x, ns.x]", "{{ ns.x | tojson }}"),
    tree_of_dicts=doubled("{}", "{'a': ns.x, 'b': ns.x}", "{{ ns.x }}"),
    trees_compared=DOUBLE.replace("START", "[0]").replace("MORE", "[ns.x, ns.x]")
    + "{% set one = ns.x %}"
    + doubled("[0]", "[ns.x, ns.x]", "{% for i in range(9999) %}{{ one == ns.x }}{% endfor %}"),
    trees_ordered=DOUBLE.replace("START", "[0]").replace("MORE", "[ns.x, ns.x]")
    + "{% set one = ns.x %}"
    + doubled("[0]", "[ns.x, ns.x]", "{{ [one, ns.x] | sort | length }}"),
    tree_as_a_key=doubled("(0,)", "(ns.x, ns.x)", "{% set d = {ns.x: 1} %}{{ d | length }}"),
    tree_made_unique=doubled("(0,)", "(ns.x, ns.x)", "{{ [ns.x] | unique | list | length }}"),
    tree_in_a_list=doubled(
        "[0]", "[ns.x, ns.x]", "{{ ns.x in [ns.x[0], ns.x[1], [0]] }}{{ ns.x }}"
    ),
    deep_list=("{% set ns = namespace(x=[]) %}{% for i in range(90000) %}{% set ns.x = [ns.x] %}")
    + "{% endfor %}{{ ns.x }}",
    macro_calls_itself="{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    macros_call_each_other="{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}"
    "{% endmacro %}{{ a() }}",
    macro_calls_itself_twice="{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}"
    "{% endmacro %}{{ m(60) }}",
    macro_bomb="{% macro m(n) %}{% if n %}{{ m(n - 1) * 10 }}{% else %}xx{% endif %}{% endmacro %}"
    "{{ m(40) }}",
    loop_calls_itself="{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
    caller_calls="{% macro m() %}{{ caller() }}{% call m() %}x{% endcall %}{% endmacro %}"
    "{% call m() %}y{% endcall %}",
    wide_range="{{ range(10000000000) | list | length }}",
    wide_number="{{ 10 ** 10 ** 10 }}",
    wide_field="{{ '%1000000000d' % 1 }}",
    wide_precision="{{ '%.1000000000f' % 1.5 }}",
    wide_format="{{ '{:1000000000}'.format(1) }}",
    wide_precision_of_format="{{ '{:.1000000000f}'.format(1.5) }}",
    wide_center="{{ 'x' | center(10000000000) }}",
    wide_ljust="{{ 'x'.ljust(10000000000) }}",
    wide_zfill="{{ 'x'.zfill(10000000000) }}",
    wide_tabs="{{ '\t\t\t'.expandtabs(1000000000) }}",
    wide_indent="{{ 'a\nb' | indent(10000000000) }}",
    wide_json="{{ [[1], [2]] | tojson(indent=1000000000) }}",
    wide_batch="{{ [1] | batch(10000000000, 'x') | list }}",
    wide_slice="{{ [1] | slice(10000000000) | list | length }}",
    long_nots="{{ " + "not " * 200000 + "1 }}",
    long_minus="{{ " + "-" * 200000 + "1 }}",
    long_sum="{{ " + "1+" * 400000 + "'x' }}",
    long_power="{{ " + "1**" * 200000 + "'x' }}",
    long_tilde="{{ missing.x ~ " + "'a' ~ " * 200000 + "'a' }}",
    long_filters="{{ 'x'" + " | upper" * 200000 + " | nothing }}",
    long_attributes="{{ x" + ".x" * 200000 + " }}",
    long_subscripts="{{ x" + "[0]" * 200000 + " }}",
    long_calls="{{ x" + "()" * 200000 + " }}",
    long_ternary="{{ " + "1 if 0 else " * 100000 + "missing.x }}",
    long_elif="{% if 0 %}" + "{% elif 0 %}" * 100000 + "{% else %}{{ missing.x }}{% endif %}",
    deep_brackets="{{ " + "(" * 200000 + "1" + ")" * 200000 + " }}",
    deep_lists="{{ " + "[" * 200000 + "]" * 200000 + " }}",
    deep_dicts="{{ " + "{1:" * 200000 + "1" + "}" * 200000 + " }}",
    deep_ifs="{% if 1 %}" * 50000 + "{% endif %}" * 50000,
    deep_fors="{% for x in [1] %}" * 50000 + "{% endfor %}" * 50000,
    deep_filter_blocks="{% filter upper %}" * 50000 + "{% endfilter %}" * 50000,
    deep_macros="{% macro m() %}" * 50000 + "{% endmacro %}" * 50000,
    open_braces="{{" * 500000,
    open_tags="{%" * 500000,
    open_comments="{#" * 500000,
    open_raw="{% raw %}" + "{% endraw " * 100000,
    open_texts="{{ '" * 200000,
    searched=BIG + often("{{ big.count('a' * 50000 ~ 'b') }}", "range(9999)"),
    split_often=BIG + often("{% set y = big.split('a') %}"),
    turned_often=BIG + often("{% set y = big[::-1] %}"),
    upper_often=BIG + often("{% set y = big | upper %}"),
    compared_often=BIG + "{% set more = 'a' * 100000 %}" + often("{% if big == more %}{% endif %}"),
    found_often="{% set xs = range(50000) | list %}" + often("{% if -1 in xs %}{% endif %}"),
    sorted_often="{% set xs = range(50000) | list %}" + often("{% set y = xs | sort %}"),
    joined_often="{% set xs = range(50000) | list %}" + often("{% set y = xs | join %}"),
    selected_often="{% set xs = range(50000) | list %}"
    + often("{% set y = xs | select('odd') | list %}"),
    stripped_tags="{{ ('<' * 300000) | striptags }}{{ missing.x }}",
    appended="{% set ns = namespace(x=[]) %}{% for i in range(99999) %}{% set ns.x = ns.x + [i] %}"
    "{% endfor %}{{ ns.x | length }}",
)
