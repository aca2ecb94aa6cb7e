from __future__ import annotations

from ipaddress import ip_address, ip_network

import pytest

from duetime.executors.guard import BlockedTarget, Guard, check_address, parse_target

NOT_PUBLIC = """
0.0.0.0 0.1.2.3 10.0.0.1 10.255.255.255 100.64.0.1 100.127.255.254 127.0.0.1 127.255.255.254 168.63.129.16
169.254.169.254 169.254.170.2 172.16.0.1 172.31.255.255 192.0.0.1 192.0.0.192 192.0.2.1 192.88.99.1 192.168.1.1
198.18.0.1 198.19.255.255 198.51.100.7 203.0.113.9 224.0.0.1 239.255.255.250 240.0.0.1 255.255.255.255
:: ::1 ::127.0.0.1 ::8.8.8.8 ::ffff:127.0.0.1 ::ffff:10.0.0.1 ::ffff:169.254.169.254 ::ffff:0:127.0.0.1
64:ff9b::127.0.0.1 64:ff9b::a9fe:a9fe 64:ff9b:1::7f00:1 64:ff9b:1:fffe::8.8.8.8 100::1
2001::1 2001:0:7f00:1::1 2001:0:4136:e378:8000:63bf:80ff:fffe 2001:2::1 2001:10::1 2001:20::1 2001:db8::1
2002:7f00:1::1 2002:a9fe:a9fe::1 2002:c0a8:101::1 3fff::1 4000::1 5f00::1
fc00::1 fd00:ec2::254 fe80::1 fe80::1%eth0 fec0::1 ff02::1 ff0e::1
"""
PUBLIC = """
1.1.1.1 8.8.8.8 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0 126.255.255.255 128.0.0.0 168.63.129.15
172.15.255.255 172.32.0.0 192.0.1.0 198.17.255.255 198.20.0.0 223.255.255.255
2606:4700:4700::1111 2a00:1450:4001::1 ::ffff:8.8.8.8 64:ff9b::8.8.8.8 2002:808:808::1
"""
LOOPBACK_FORMS = """
127.0.0.1 127.1 127.0.1 2130706433 0x7f000001 0x7F.1 0177.0.0.1 017700000001 127.0.0.1. ①②⑦.0.0.1 127。0。0。1
１２７.0.0.1 0x7f.0x0.0x0.0x1 [::1] [::ffff:127.0.0.1] [0:0:0:0:0:ffff:7f00:1] [::ffff:7f00:1] [64:ff9b::7f00:1]
"""
MALFORMED = [
    "",
    "example.com",
    "//example.com/",
    "ftp://example.com/",
    "file:///etc/passwd",
    "gopher://example.com/",
    "http:/example.com",
    "http:example.com",
    "http:///path",
    "http://",
    "http://:80/",
    "http://?x",
    "http://user@example.com/",
    "http://user:pass@example.com/",
    "http://@example.com/",
    "http://example.com:80@127.0.0.1/",
    "http://example.com\\@127.0.0.1/",
    "http:\\\\example.com/",
    "http://exa mple.com/",
    " http://example.com/",
    "http://example.com/ ",
    "http://example.com/\r\nX: y",
    "http://exam\tple.com/",
    "http://example.com/\x00",
    "http://ex%61mple.com/",
    "http://127.0.0.1%2f@example.com/",
    "http://[fe80::1%25eth0]/",
    "http://[fe80::1%eth0]/",
    "http://[::1/",
    "http://[example.com]/",
    "http://[v1.x]/",
    "http://example.com./",
    "http://example..com/",
    "http://.example.com/",
    "http://./",
    "http://*/",
    "http://-a.example/",
    "http://" + "a" * 64 + ".com/",
    "http://" + "a." * 127 + "com/",
    "http://example.com/" + "x" * 2048,
    "http://1.2.3.4.5/",
    "http://256.1.1.1/",
    "http://example.0x7f/",
    "http://99999999999/",
    "http://example.com:99999/",
    "http://example.com:-1/",
    "http://example.com:8o/",
    "http://example.com:80:90/",
    "http://faß.de/",
    "http://exa℀mple.com/",
    "http://example.com／@127.0.0.1/",
    "http://xn--\ud800/",
]


def words(text: str) -> list[str]:
    return text.split()


@pytest.mark.parametrize("address", words(NOT_PUBLIC))
def test_an_address_that_is_not_public_is_refused(address: str):
    with pytest.raises(BlockedTarget):
        check_address(ip_address(address))


@pytest.mark.parametrize("address", words(PUBLIC))
def test_a_public_address_passes(address: str):
    check_address(ip_address(address))


@pytest.mark.parametrize("host", words(LOOPBACK_FORMS))
def test_every_way_to_write_loopback_is_refused(host: str):
    with pytest.raises(BlockedTarget, match="not a public address"):
        Guard().target(f"http://{host}/")


@pytest.mark.parametrize("url", MALFORMED)
def test_a_url_that_two_parsers_could_read_differently_is_refused(url: str):
    with pytest.raises(BlockedTarget):
        parse_target(url)


@pytest.mark.parametrize("port", [1, 22, 25, 53, 110, 139, 389, 445, 587, 993, 1023])
def test_ports_of_other_protocols_are_refused(port: int):
    with pytest.raises(BlockedTarget, match=f"Port {port} "):
        parse_target(f"http://example.com:{port}/")


@pytest.mark.parametrize("port", [80, 443, 1024, 3000, 8080, 65535])
def test_ports_of_web_servers_pass(port: int):
    assert parse_target(f"http://example.com:{port}/").port == port


def test_an_operator_can_narrow_the_ports():
    with pytest.raises(BlockedTarget):
        parse_target("https://example.com:8443/", ports=((443, 443),))


def test_a_url_is_parsed_into_a_target():
    target = parse_target("HTTPS://Bücher.Example:8443/a%20b/ü?q=1&r=ä#part")
    assert (target.tls, target.host, target.port) == (True, "xn--bcher-kva.example", 8443)
    assert target.path == "/a%20b/%C3%BC?q=1&r=%C3%A4"
    assert target.authority == "xn--bcher-kva.example:8443"
    assert target.address is None


@pytest.mark.parametrize(
    ("url", "path", "authority"),
    [
        ("http://example.com", "/", "example.com"),
        ("http://example.com?x", "/?x", "example.com"),
        ("https://example.com:443/", "/", "example.com"),
        ("http://example.com:443/", "/", "example.com:443"),
        ("http://[2606:4700::1]:8080/a", "/a", "[2606:4700::1]:8080"),
        ("http://a_b.example/", "/", "a_b.example"),
    ],
)
def test_path_and_authority_are_what_the_request_line_needs(url: str, path: str, authority: str):
    target = parse_target(url)
    assert (target.path, target.authority) == (path, authority)


def test_an_operator_can_allow_one_network_and_no_other():
    guard = Guard(allow=tuple(map(ip_network, ("10.1.0.0/16", "fd00::/8"))))
    guard.check(ip_address("10.1.2.3"))
    guard.check(ip_address("::ffff:10.1.2.3"))
    guard.check(ip_address("64:ff9b::10.1.2.3"))
    guard.check(ip_address("fd00::1"))
    guard.check(ip_address("8.8.8.8"))
    for address in ("10.2.0.1", "127.0.0.1", "64:ff9b::10.2.0.1", "169.254.169.254", "fe80::1"):
        with pytest.raises(BlockedTarget):
            guard.check(ip_address(address))


def test_allowing_an_ipv6_network_does_not_allow_the_ipv4_addresses_inside_it():
    guard = Guard(allow=tuple(map(ip_network, ("2002::/16", "64:ff9b:1::/48", "::/96"))))
    for address in ("2002:7f00:1::1", "64:ff9b:1::7f00:1", "::127.0.0.1"):
        with pytest.raises(BlockedTarget):
            guard.check(ip_address(address))
    guard.check(ip_address("64:ff9b:1::808:808"))


def test_an_operator_can_allow_everything():
    guard = Guard(allow=True)
    assert guard.target("http://127.1:8080/").host == "127.0.0.1"
    guard.check(ip_address("169.254.169.254"))


def test_the_message_does_not_repeat_path_or_query():
    with pytest.raises(BlockedTarget) as caught:
        Guard().target("http://127.0.0.1/hook?token=s3cret")
    assert "s3cret" not in str(caught.value)


def test_a_refusal_names_the_setting_that_would_allow_the_address():
    guard = Guard()
    for url, address in (
        ("http://127.0.0.1:8080/x?token=s3cret", "127.0.0.1/32"), ("http://localhost/", "127.0.0.1/32"),
        ("https://shop.localhost:8443", "127.0.0.1/32"), ("http://[::1]/", "::1/128"),
        ("http://[::ffff:10.0.0.1]/", "10.0.0.1/32"),
    ):  # fmt: skip
        refusal = guard.refusal(url)
        assert refusal is not None, url
        assert f"ALLOW_PRIVATE_TARGETS={address}." in refusal, url
        assert "s3cret" not in refusal


def test_a_refusal_names_no_setting_if_none_allows_the_target():
    refusal = Guard(allow=True).refusal("http://example.com:22/")
    assert refusal == "Port 22 is not one that jobs may call."


def test_a_url_whose_text_is_allowed_has_no_refusal():
    guard = Guard(allow=(ip_network("127.0.0.0/8"),))
    for url in ("https://example.com/", "http://8.8.8.8/", "http://localhost:9000/", "http://127.9.9.9/"):
        assert guard.refusal(url) is None, url
