"""Which site a host belongs to: its name below the suffix that a registry or a host of many customers gives out.

A table of common suffixes and a rule for registries of countries. A suffix that is missing makes a site larger, so
that more addresses count as those of one owner, and more of them ask.
"""

from __future__ import annotations

import ipaddress
import re
import socket

__all__ = ["canonical_host", "is_domain", "site_of"]


def _set(names: str) -> frozenset[str]:
    return frozenset(names.split())


_REGISTRY = _set(
    "ac ad asn asso co com conf csiro edu firm fin gc go gob gouv gov gub gv ind inf info int k12 lg ltd me mi mil mod"
    " ne net nhs nic nom or org plc police prd press pro sch school web"
)
"""Second labels that registries of countries give names below: `co.uk`, `com.br`, `gv.at`."""
_SHARED = _set(
    "000webhostapp.com amazonaws.com appspot.com azureedge.net azurefd.net azurewebsites.net b-cdn.net"
    " backblazeb2.com bitbucket.io blob.core.windows.net blogspot.com canarytokens.com cloudapp.net cloudfront.net"
    " cloudfunctions.net codeberg.page deno.dev digitaloceanspaces.com duckdns.org dyndns.org fastly.net"
    " firebaseapp.com fly.dev gateway.dev ghost.io github.io githubusercontent.com gitlab.io glitch.me"
    " googleapis.com googleusercontent.com herokuapp.com hf.space hostedapp.org loca.lt localhost.run lovable.app"
    " myshopify.com mystrikingly.com neocities.org netlify.app ngrok-free.app ngrok.app ngrok.io nip.io no-ip.org"
    " oast.fun oast.live oast.me oast.online oast.pro oast.site on.aws onrender.com pages.dev pipedream.net"
    " pythonanywhere.com r2.dev railway.app readthedocs.io render.com repl.co replit.app replit.dev run.app"
    " serveo.net sharepoint.com sourceforge.io sslip.io streamlit.app supabase.co surge.sh trycloudflare.com"
    " tumblr.com up.railway.app vercel.app web.app webflow.io weebly.com wixsite.com wordpress.com workers.dev"
    " wpengine.com zapto.org"
)
"""Names below which everybody can have one of their own."""
_COUNTRIES = _set(
    "ac ad ae af ag ai al am ao aq ar as at au aw ax az ba bb bd be bf bg bh bi bj bm bn bo br bs bt bw by bz ca cc cd"
    " cf cg ch ci ck cl cm cn co cr cu cv cw cx cy cz de dj dk dm do dz ec ee eg er es et eu fi fj fk fm fo fr ga gd ge"
    " gf gg gh gi gl gm gn gp gq gr gs gt gu gw gy hk hm hn hr ht hu id ie il im in io iq ir is it je jm jo jp ke kg kh"
    " ki km kn kp kr kw ky kz la lb lc li lk lr ls lt lu lv ly ma mc md me mg mh mk ml mm mn mo mp mq mr ms mt mu mv mw"
    " mx my mz na nc ne nf ng ni nl no np nr nu nz om pa pe pf pg ph pk pl pm pn pr ps pt pw py qa re ro rs ru rw sa sb"
    " sc sd se sg sh si sk sl sm sn so sr ss st su sv sx sy sz tc td tf tg th tj tk tl tm tn to tr tt tv tw tz ua ug uk"
    " us uy uz va vc ve vg vi vn vu wf ws ye yt za zm zw"
)
_PLAIN = _set(
    "arpa aero asia biz bond buzz cfd click cloud club com coop cyou edu example fun gov icu internal invalid lan life"
    " live lol local mil mobi museum net onion online org pro pub rest sbs shop site space store tech test today top"
    " vip website wiki work world xyz zone"
)
"""Top-level names that are hardly ever the end of a file's or a method's name."""
_TAKEN = _set("app apple blog cab cat dev email foo gdn info link name new page pics run science zip")
"""Top-level names that are often the end of something else."""
_NUMBER = r"(?:0x[0-9a-f]+|\d+)"
_NUMERIC = re.compile(rf"{_NUMBER}(?:\.{_NUMBER}){{0,3}}\.?")
_FULL_STOPS = str.maketrans("\u3002\uff0e\uff61", "...")


def canonical_host(host: str) -> str:
    """Return a host as it is asked for: in ASCII and lower case, numbers as the address that they are."""
    host = host.translate(_FULL_STOPS).strip("[]").rstrip(".").lower()
    if ":" in host or _NUMERIC.fullmatch(host):
        return _ip(host) or host
    if host.isascii():
        return host
    try:
        return host.encode("idna").decode()
    except UnicodeError:  # no name that can be asked for, and therefore like no other
        return host


def _ip(host: str) -> str:
    try:
        if ":" not in host:
            return str(ipaddress.IPv4Address(socket.inet_aton(host)))
        found = ipaddress.IPv6Address(host.partition("%")[0])
        return str(found.ipv4_mapped or found)
    except (OSError, ValueError):
        return ""


def site_of(host: str) -> str:
    """Return the part of a canonical host that one owner has: `a.b.example.co.uk` is of `example.co.uk`."""
    if host.replace(".", "").isdigit() or ":" in host:
        return host
    labels = host.split(".")
    for length in range(len(labels) - 1, 1, -1):
        if ".".join(labels[-length:]) in _SHARED:
            return ".".join(labels[-length - 1 :])
    of_country = len(labels) > 2 and len(labels[-1]) == 2 and labels[-2] in _REGISTRY
    return ".".join(labels[-3 if of_country else -2 :])


def is_domain(name: str, *, surely: bool) -> bool:
    """Say whether a name with dots can be a domain.

    Args:
        surely: nothing around it says so; then it must not be the name of a file or a method either.
    """
    top = name.rstrip(".").rpartition(".")[2].lower()
    if top in _PLAIN or top.startswith("xn--"):
        return True
    return not surely and (top in _COUNTRIES or top in _TAKEN or not top.isascii())
