"""Certificates of a test's own, made with the `openssl` program: an authority, servers by their names, clients."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path

USES = "keyUsage=digitalSignature\nextendedKeyUsage=serverAuth,clientAuth\n"


class Authority:
    """Signs certificates; its own is `cacert`."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.cacert = folder, folder / "ca.pem"
        made = ["-x509", "-days", "2", "-subj", "/O=fleetcron tests", "-addext", "keyUsage=critical,keyCertSign"]
        _openssl("req", *_new_key(folder / "ca.key"), *made, "-out", str(self.cacert))

    @staticmethod
    def here() -> bool:
        return shutil.which("openssl") is not None

    def certificate(self, name: str, *, names: str = "", subject: str = "/O=fleetcron tests") -> tuple[Path, Path]:
        """(certificate, key) for `names`, such as "DNS:localhost,IP:127.0.0.1"."""
        cert, key, asked = (self.folder / f"{name}.{kind}" for kind in ("pem", "key", "csr"))
        words = self.folder / f"{name}.ext"
        words.write_text(USES + (f"subjectAltName={names}\n" if names else ""))
        _openssl("req", *_new_key(key), "-subj", subject, "-out", str(asked))
        signed = ["-CA", str(self.cacert), "-CAkey", str(self.folder / "ca.key"), "-CAcreateserial", "-days", "2"]
        _openssl("x509", "-req", "-in", str(asked), *signed, "-extfile", str(words), "-out", str(cert))
        return cert, key

    def context(self) -> ssl.SSLContext:
        """For a client of the tests' own, which says who it is and takes a server by any name."""
        context = ssl.create_default_context(cafile=str(self.cacert))
        context.check_hostname = False
        context.load_cert_chain(*self.certificate("test"))
        return context


def _new_key(path: Path) -> list[str]:
    return ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", str(path)]


def _openssl(*words: str) -> None:
    done = subprocess.run(["openssl", *words], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
