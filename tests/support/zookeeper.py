"""A ZooKeeper server of a test's own: a plain Java process from Debian's jars."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from tests.support.server import Server

JARS = Path("/usr/share/java")
NAMES = (
    "zookeeper zookeeper-jute slf4j-api slf4j-simple commons-cli commons-io metrics-core snappy-java "
    "netty-all netty-buffer netty-codec netty-common netty-handler netty-resolver netty-transport"
)


class ZooKeeper(Server):
    """Sessions of a second and more (ticks of 0.5 s)."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.url = f"zk://127.0.0.1:{self.port}/fleet"

    @staticmethod
    def here() -> bool:
        return shutil.which("java") is not None and (JARS / "zookeeper.jar").exists()

    def command(self) -> Sequence[str]:
        config = self.folder / "zoo.cfg"
        config.write_text(
            f"tickTime=500\ndataDir={self.folder / 'data'}\nclientPort={self.port}\nclientPortAddress=127.0.0.1\n"
            "admin.enableServer=false\nminSessionTimeout=1000\nmaxClientCnxns=0\nforceSync=no\n"
        )
        jars = [str(JARS / f"{name}.jar") for name in NAMES.split() if (JARS / f"{name}.jar").exists()]
        jvm = ["-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dzookeeper.4lw.commands.whitelist=*"]
        main = "org.apache.zookeeper.server.ZooKeeperServerMain"
        return ["java", *jvm, "-cp", ":".join(jars), main, str(config)]

    def answers(self) -> bool:
        return self.ask(b"ruok") == b"imok"
