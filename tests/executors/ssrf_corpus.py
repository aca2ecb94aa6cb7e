"""URLs of an attacker's jobs, and responses of an attacker's name servers. Data only.

Placeholders in URLs and answers: `{port}` the canary's port, `{tls}` its other one, `{public}` and `{public6}` the
addresses that may be called, `{at}` a path that identifies the entry.
"""

from __future__ import annotations

from enum import StrEnum
from ipaddress import IPv6Address, ip_address
from typing import NamedTuple


class End(StrEnum):
    REFUSED = "refused: nothing was sent"
    PUBLIC = "only the public address was called"
    REDIRECT = "the redirect was not followed"


class Entry(NamedTuple):
    url: str
    reach: str = ""  # where it arrives if everything is allowed; empty: nowhere, or not certain
    end: End = End.REFUSED


_V4 = """
127.0.0.1 127.0.0.3 127.1.2.3 127.255.255.254 0.1.2.3 10.0.0.1 10.255.255.255 100.64.0.1 100.127.255.254 168.63.129.16
169.254.169.254 169.254.170.2 172.16.0.1 172.31.255.255 192.0.0.1 192.0.0.8 192.0.0.170 192.0.0.192 192.0.2.1
192.88.99.1 192.168.0.1 198.18.0.1 198.51.100.7 203.0.113.9 240.0.0.1
"""
_V6 = """
::1 ::127.0.0.1 ::169.254.169.254 ::8.8.8.8 ::ffff:0:127.0.0.1 64:ff9b::127.0.0.1 64:ff9b::169.254.169.254
64:ff9b::10.0.0.1 64:ff9b:1::7f00:1 64:ff9b:1:fffe::8.8.8.8 100::1 2001::1 2001:0:7f00:1::1
2001:0:4136:e378:8000:63bf:80ff:fffe 2001:2::1 2001:10::1 2001:20::1 2001:db8::1 2002:7f00:1::1 2002:a9fe:a9fe::1
2002:c0a8:101::1 3fff::1 4000::1 5f00::1 fc00::1 fd00:ec2::254 fec0::1 feff::1
"""
_NO_UNICAST = "224.0.0.1 239.255.255.250 255.255.255.255 fe80::1 fe80::a9fe:a9fe ff02::1 ff0e::1"
# Each with the address that a connection reaches if everything is allowed and every address listens.
ADDRESSES: dict[str, str] = {
    **{address: address for text in (_V4, _V6) for address in text.split()},
    **{f"::ffff:{address}": address for address in ("127.0.0.1", "127.1.2.3", "10.0.0.1", "169.254.169.254")},
    **dict.fromkeys(_NO_UNICAST.split(), ""),
    "0.0.0.0": "127.0.0.1",
    "::": "::1",
}

# Other notations of an address. The first word of each line is the address that is reached.
FORMS = """
127.0.0.1 2130706433 0x7f000001 0X7F000001 017700000001 0177.0.0.1 0177.0.0.01 0000000177.0.0.1 0x7f.1 0x7f.0x0.0x0.0x1
127.0.0.1 127.1 127.0.1 127.0.0.1. 127.00.0.1 127.0.0.001 127.0x0.00.1
127.0.0.1 0 00 0x0 0.0 0.0.0.0.
127.0.0.1 ①②⑦.0.0.1 ①②⑦.① １２７.０.０.１ 127。0。0。1 127．0．0．1 127｡0｡0｡1 ⑫7.0.0.1 ²130706433 ０x7f000001
127.0.0.1 [::ffff:7f00:1] [0:0:0:0:0:ffff:7f00:1] [0000:0000:0000:0000:0000:FFFF:127.0.0.1]
::1 [0:0:0:0:0:0:0:1] [0000::0001] [::0.0.0.1]
127.1.2.3 127.66051 0x7f.0x010203 2130772483
169.254.169.254 2852039166 0xa9fea9fe 0251.0376.0251.0376 169.16689662 169.254.43518 [::ffff:a9fe:a9fe]
192.168.0.1 3232235521 0xc0a80001 192.168.1 0300.0250.0.1
10.0.0.1 167772161 012.0.0.1 10.1 0xa.1
100.64.0.1 1681915905 0x64400001
"""

# Names of this machine, from its own files.
OWN_NAMES = {"localhost.localdomain": "127.0.0.1", "ip6-localhost": "::1", "ip6-loopback": "::1"}

# The answers of a name server, in turn, and then always the last one.
NAMES: dict[str, list[list[str]]] = {
    "public.test": [["{public}"]],
    "sub.localhost": [["127.0.0.1"]],
    "127.0.0.1.nip.test": [["127.0.0.1"]],
    "metadata.google.internal": [["169.254.169.254"]],
    "unix": [["127.0.0.1"]],
    "http": [["127.0.0.1"]],
    "xn--bcher-kva.test": [["127.0.0.1"]],
    "mixed-last.test": [["{public}", "127.0.0.1"]],
    "mixed-first.test": [["127.0.0.1", "{public}"]],
    "mixed-private.test": [["{public}", "10.0.0.1"]],
    "mixed-metadata.test": [["{public}", "169.254.169.254"]],
    "mixed-families.test": [["{public}", "::1"]],
    "mixed-mapped.test": [["{public}", "::ffff:127.0.0.1"]],
    "mixed-nat64.test": [["{public}", "64:ff9b::7f00:1"]],
    "mixed-many.test": [["{public}"] * 9 + ["127.0.0.1"]],
    "rebind.test": [["{public}"], ["127.0.0.1"]],
    "rebind-6.test": [["{public}"], ["::1"]],
    "rebind-mixed.test": [["{public}"], ["{public}", "127.0.0.1"]],
    "rebind-back.test": [["127.0.0.1"], ["{public}"]],
    **{f"address-{number}.test": [[address]] for number, address in enumerate(ADDRESSES)},
}
# Aliases: a name server answers with the whole chain.
ALIASES = {
    "alias.test": "127.0.0.1.nip.test",
    "alias-of-alias.test": "alias.test",
    "alias-of-mixed.test": "mixed-last.test",
    "alias-of-metadata.test": "metadata.google.internal",
}

_NOWHERE = r"""
http://user@127.0.0.1:{port}{at}
http://user:pass@127.0.0.1:{port}{at}
http://:pass@127.0.0.1:{port}{at}
http://@127.0.0.1:{port}{at}
http://public.test@127.0.0.1:{port}{at}
http://public.test:{port}@127.0.0.1:{port}{at}
http://127.0.0.1:{port}@public.test:{port}{at}
http://127.0.0.1%40public.test:{port}{at}
http://public.test%40127.0.0.1:{port}{at}
http://public.test%2f@127.0.0.1:{port}{at}
http://public.test／@127.0.0.1:{port}{at}
http://public.test＃@127.0.0.1:{port}{at}
http://public.test？@127.0.0.1:{port}{at}
http://public.test＠127.0.0.1:{port}{at}
http://public.test﹫127.0.0.1:{port}{at}
http://public.test：{port}@127.0.0.1:{port}{at}
http://user:pass@localhost:{port}{at}
http://user:pass@public.test:{port}{at}
http://user@public.test:{port}{at}
http://user@{public}:{port}{at}
http://public.test:{port}\@127.0.0.1:{port}{at}
http://127.0.0.1:{port}\@public.test:{port}{at}
http://public.test\127.0.0.1:{port}{at}
http://127.0.0.1:{port}\.public.test{at}
http://public.test:{port}{at}\@127.0.0.1:{port}
http:\\127.0.0.1:{port}{at}
http:/\127.0.0.1:{port}{at}
\\127.0.0.1:{port}{at}
http:127.0.0.1:{port}{at}
http:/127.0.0.1:{port}{at}
http:///127.0.0.1:{port}{at}
http:////127.0.0.1:{port}{at}
//127.0.0.1:{port}{at}
127.0.0.1:{port}{at}
localhost:{port}{at}
http://127.0.0.1:{port}:80{at}
http://127.0.0.1:80:{port}{at}
http://127.0.0.1:+{port}{at}
http://127.0.0.1:０{port}{at}
http://127.0.0.1:0{at}
http://127.0.0.1:65536{at}
http://127.0.0.1:-{port}{at}
http://[::1%lo]:{port}{at}
http://[::1%25lo]:{port}{at}
http://[::1%251]:{port}{at}
http://[fe80::1%lo]:{port}{at}
http://[fe80::1%25eth0]:{port}{at}
http://[fe80::1%25eth0%2f@public.test]:{port}{at}
http://[::ffff:127.0.0.1%25lo]:{port}{at}
http://[::1:{port}{at}
http://::1:{port}{at}
http://[::1]]:{port}{at}
http://[[::1]]:{port}{at}
http://[::1]x:{port}{at}
http://[::1].public.test:{port}{at}
http://public.test[::1]:{port}{at}
http://[127.0.0.1]:{port}{at}
http://[localhost]:{port}{at}
http://[v1.127.0.0.1]:{port}{at}
http://[::ffff:2130706433]:{port}{at}
http://[::ffff:0x7f.0.0.1]:{port}{at}
http://[::ffff:127.1]:{port}{at}
http://[::①]:{port}{at}
http://localhost.:{port}{at}
http://LOCALHOST.:{port}{at}
http://localhost..:{port}{at}
http://127.0.0.1..:{port}{at}
http://.127.0.0.1:{port}{at}
http://127.0.0.1%00.public.test:{port}{at}
http://127.0.0.1%2e:{port}{at}
http://%31%32%37.0.0.1:{port}{at}
http://loc%61lhost:{port}{at}
http://127.0.0.1%09:{port}{at}
http://4294967297:{port}{at}
http://0x17f000001:{port}{at}
http://127.0.0.256:{port}{at}
http://127.0.0.0.1:{port}{at}
http://383.256.256.257:{port}{at}
http://public.test.127:{port}{at}
http://-127.0.0.1:{port}{at}
http://127.0.0.1-:{port}{at}
http://*:{port}{at}
http://127.0.0.1/24:{port}{at}
http://faß.localhost:{port}{at}
file:///etc/passwd
file://127.0.0.1:{port}{at}
ftp://127.0.0.1:{port}{at}
ftp://public.test:{port}{at}
ws://public.test:{port}{at}
unix://public.test:{port}{at}
gopher://127.0.0.1:{port}/_GET%20/
dict://127.0.0.1:{port}/info
ldap://127.0.0.1:{port}{at}
tftp://127.0.0.1:{port}{at}
ws://127.0.0.1:{port}{at}
h2c://127.0.0.1:{port}{at}
httpx://127.0.0.1:{port}{at}
http+unix://%2Fvar%2Frun%2Fdocker.sock{at}
https+unix://%2Fvar%2Frun%2Fdocker.sock{at}
unix:///var/run/docker.sock
unix:/var/run/docker.sock:{at}
http://unix:/var/run/docker.sock:{at}
http://%2Fvar%2Frun%2Fdocker.sock{at}
jar:http://127.0.0.1:{port}!{at}
url:http://127.0.0.1:{port}{at}
view-source:http://127.0.0.1:{port}{at}
data:text/plain,hello
javascript:fetch('http://127.0.0.1:{port}{at}')
blob:http://127.0.0.1:{port}{at}
http://http://127.0.0.1:{port}{at}
https://http:@127.0.0.1:{port}{at}
"""
_CONTROL = [
    " http://127.0.0.1:{port}{at}",
    "http://127.0.0.1:{port}{at} ",
    "\thttp://127.0.0.1:{port}{at}",
    "ht\ntp://127.0.0.1:{port}{at}",
    "http://127.0.\t0.1:{port}{at}",
    "http://127.0.0.1\r\n:{port}{at}",
    "http://public.test:{port}{at} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "http://public.test\r\nX: y@127.0.0.1:{port}{at}",
    "http://public.test\u00a0@127.0.0.1:{port}{at}",
    "http://127.0.0.1\u0085:{port}{at}",
    "http://loc\u200balhost\u2028:{port}{at}",
    "http://loc\u200dalhost:{port}{at}",
    "http://①②⑦.①\u3000:{port}{at}",
]
# Other notations of a name of this machine.
_LOCALHOSTS = (
    "localhost", "LOCALHOST", "LocalHost", "ⓛⓞⓒⓐⓛⓗⓞⓢⓣ", "ｌｏｃａｌｈｏｓｔ", "𝓁𝑜𝒸𝒶𝓁𝒽𝑜𝓈𝓉", "loc\u00adalhost",
    "loc\u200balhost",
)  # fmt: skip
_PUBLIC = """
http://public.test:{port}{at}
http://{public}:{port}{at}
http://{public}:{port}{at}?next=http://127.0.0.1:{port}/
http://public.test:{port}{at}#@127.0.0.1:{port}/
http://public.test:{port}{at}?@127.0.0.1:{port}/
http://public.test:{port}{at}/@127.0.0.1:{port}/
http://rebind.test:{port}{at}
http://rebind-6.test:{port}{at}
http://rebind-mixed.test:{port}{at}
"""
LOW_PORTS = (22, 25, 53, 110, 139, 389, 445, 587, 631, 993, 1023)
_REDIRECTED_TO = (
    "http://127.0.0.1:{port}/", "http://[::1]:{port}/", "http://localhost:{port}/", "//127.0.0.1:{port}/",
    "http://169.254.169.254/latest/meta-data/", "http://2130706433:{port}/", "file:///etc/passwd",
)  # fmt: skip
REDIRECTS = {301: "Moved Permanently", 302: "Found", 303: "See Other", 307: "Temporary", 308: "Permanent", 300: "Many"}


def _in_brackets(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def same(address: str) -> str:
    """Returns one notation of an address, as the kernel reports it for a connection."""
    parsed = ip_address(address)
    return str(parsed.ipv4_mapped or parsed) if isinstance(parsed, IPv6Address) else str(parsed)


def _hosts() -> dict[str, str]:
    """Hosts of a URL, with the address that each reaches."""
    hosts = {_in_brackets(address): reach for address, reach in ADDRESSES.items()}
    for line in FORMS.splitlines():
        reach, *forms = line.split() or [""]
        hosts |= dict.fromkeys(forms, reach)
    hosts |= dict.fromkeys(_LOCALHOSTS, "localhost") | OWN_NAMES
    hosts |= {"Bücher.test": "127.0.0.1", "sub.localhost": "127.0.0.1", "127.0.0.1.nip.test": "127.0.0.1"}
    hosts |= {"alias.test": "127.0.0.1", "alias-of-alias.test": "127.0.0.1"}
    hosts |= {"metadata.google.internal": "169.254.169.254", "alias-of-metadata.test": "169.254.169.254"}
    hosts |= {f"address-{number}.test": reach for number, reach in enumerate(ADDRESSES.values())}
    return hosts


def corpus() -> list[Entry]:
    hosts = _hosts()
    entries = [Entry(f"http://{host}:{{port}}{{at}}", reach) for host, reach in hosts.items()]
    entries += [Entry(f"http://{name}:{{port}}{{at}}") for name in (*NAMES, *ALIASES) if name.startswith("mixed")]
    entries += [Entry("http://alias-of-mixed.test:{port}{at}"), Entry("http://rebind-back.test:{port}{at}")]
    entries += [
        Entry(f"http://127.0.0.1:{{port}}{tail}") for tail in ("?x{at}", "#@public.test{at}", "?@public.test{at}")
    ]
    entries += [
        Entry("HTTP://127.0.0.1:{port}{at}", "127.0.0.1"),
        Entry("http://127.0.0.1{at}"),
        Entry("http://[::1]{at}"),
    ]
    entries += [Entry(f"https://{host}:{{tls}}{{at}}") for host in ("127.0.0.1", "[::1]", "localhost", "①②⑦.0.0.1")]
    entries += [Entry(url) for url in (*_NOWHERE.split("\n")[1:-1], *_CONTROL)]
    entries += [Entry(f"http://{host}:{port}{{at}}") for port in LOW_PORTS for host in ("{public}", "public.test")]
    entries += [Entry(url, end=End.PUBLIC) for url in _PUBLIC.split()]
    entries += [
        Entry(f"http://{{public}}:{{port}}{{at}}/redirect/{status}/{where}", end=End.REDIRECT)
        for status in REDIRECTS
        for where in range(len(_REDIRECTED_TO))
    ]
    return entries


def location(number: int, port: int) -> str:
    return _REDIRECTED_TO[number].replace("{port}", str(port))
