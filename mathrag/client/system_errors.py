"""Explain errors of the operating system: which file, why, and what to do."""

import errno
import os

OTHER_FOLDER = "or take another folder: --data-dir DIR, MATHRAG_DATA_DIR"
FIXES = {
    errno.EACCES: f"give this user the right to it (`ls -ld` shows whose it is), {OTHER_FOLDER}",
    errno.EPERM: f"give this user the right to it (`ls -ld` shows whose it is), {OTHER_FOLDER}",
    errno.EROFS: f"mount it for writing, {OTHER_FOLDER}",
    errno.ENOSPC: f"free some room there (`df -h` shows it), {OTHER_FOLDER}",
    errno.EDQUOT: f"free some room there (`quota` shows it), {OTHER_FOLDER}",
    errno.ENOTDIR: "name a folder, or move the file in its way",
    errno.EEXIST: "name a folder, or move the file in its way",
    errno.EISDIR: "name a file",
    errno.ENOENT: "make it, or name another one",
    errno.ENAMETOOLONG: "take a shorter path",
    errno.EMFILE: "allow this user more open files: ulimit -n 4096",
    errno.ENFILE: "allow more open files: sysctl fs.file-max",
    errno.ENOMEM: "free some memory",
}
"""Remedies by error number; an error that is not listed is a defect of ours."""
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""Errors for want of a resource: the same command may succeed later."""


def explain(error: OSError) -> tuple[str, str] | None:
    """Return the problem and its remedy; None for an error that an operator cannot fix."""
    if error.errno == errno.ENOENT and not error.filename:
        return "the working directory no longer exists", "cd to an existing one"
    fix = FIXES.get(error.errno or 0)
    if fix is None:
        return None
    reason = os.strerror(error.errno or 0).lower()
    return f"`{os.fsdecode(error.filename)}`: {reason}" if error.filename else reason, fix
