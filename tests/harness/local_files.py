"""a JVM of the tests -> the same JVM, whose Hadoop sets the modes of local files by a system call, not by a process.

Hadoop starts `chmod` for each local file and folder that it makes: some 35 times in a test that moves five rows.
"""

from __future__ import annotations

from typing import Any

_SOURCE = """
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermissions;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

public class LocalFiles extends LocalFileSystem {
    public LocalFiles() {
        super(new Raw());
    }

    public static class Raw extends RawLocalFileSystem {
        public void setPermission(Path path, FsPermission permission) throws java.io.IOException {
            java.io.File file = pathToFile(path);
            Files.setPosixFilePermissions(file.toPath(), PosixFilePermissions.fromString(permission.toString()));
        }
    }
}
"""


def set_modes_without_processes(jvm: Any) -> None:
    """Have Hadoop take a class that is compiled here for `file:` (0.1 s), in a JVM that has opened no file system."""
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.cook(_SOURCE)
    files = jvm.org.apache.hadoop.fs.FileSystem
    files.getFileSystemClass("file", jvm.org.apache.hadoop.conf.Configuration())  # loads those that are known
    known = jvm.java.lang.Class.forName("org.apache.hadoop.fs.FileSystem").getDeclaredField("SERVICE_FILE_SYSTEMS")
    known.setAccessible(True)
    known.get(None).put("file", compiler.getClassLoader().loadClass("LocalFiles"))
    files.closeAll()
