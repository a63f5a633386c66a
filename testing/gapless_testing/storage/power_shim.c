/* Keeps, for each file below a directory, the content that a sync has made certain, so that a power cut can be
   imitated: what no sync covers is not there afterwards. It can also let syncs fail, and the disk be full.

   Preloaded (LD_PRELOAD) into the process that has a volume open, by power.py, which also builds what the cut leaves.
   The process tells with gapless_power_begin which directory is looked at, and where copies are kept:

     INODE.synced   what the file held when its last sync began
     INODE.held     another link to it, so that its number is not given to another file
     INODE.names    of a directory: what it held when it was synced; each entry is "INODE TYPE NAME\0"
     INODE.base     (made by power.py) a link to a file that was there, and certain, in the beginning

   A file with a .base is copied when it is first opened for writing. What is cut off a file is gone at once. Nothing is
   really synced: the copy counts. */

#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define PATH_BYTES 4096
#define CHUNK (1 << 16)
#define READERS 4096

static char root[PATH_BYTES], copies[PATH_BYTES];
static size_t root_length;
static int active;
static pthread_mutex_t copying = PTHREAD_MUTEX_INITIALIZER;

/* What power.py may ask and set, by number. */
enum field { SYNCS, WRITES, CUT_AT_SYNC, CUT_AT_WRITE, HOLD, HELD, FAIL_SYNCS, FULL, FIELDS };
static _Atomic int32_t fields[FIELDS];

int gapless_power_get(int field) { return fields[field]; }

void gapless_power_set(int field, int value) { fields[field] = value; }

void gapless_power_begin(const char *directory, const char *where) {
    snprintf(root, sizeof root, "%s", directory);
    snprintf(copies, sizeof copies, "%s", where);
    root_length = strlen(root);
    active = 1;
}

/* A process that the volume starts inherits where to look. */
__attribute__((constructor)) static void inherit(void) {
    const char *directory = getenv("GAPLESS_POWER_ROOT"), *where = getenv("GAPLESS_POWER_COPIES");
    if (directory != NULL && where != NULL) gapless_power_begin(directory, where);
}

static int is_below(const char *path) {
    return strncmp(path, root, root_length) == 0 && (path[root_length] == '/' || path[root_length] == '\0');
}

/* Whether a descriptor is open on something below the directory that still has a name. */
static int concerns(int descriptor) {
    char link[64], path[PATH_BYTES];
    if (!active) return 0;
    int error = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = syscall(SYS_readlinkat, AT_FDCWD, link, path, sizeof path - 1);
    errno = error;
    if (length <= 0) return 0;
    path[length] = '\0';
    return is_below(path);
}

static void copy_name(char *name, uint64_t inode, const char *what) {
    snprintf(name, PATH_BYTES + 64, "%s/%llu.%s", copies, (unsigned long long)inode, what);
}

static int is_there(uint64_t inode, const char *what) {
    char name[PATH_BYTES + 64];
    copy_name(name, inode, what);
    return syscall(SYS_faccessat, AT_FDCWD, name, F_OK) == 0;
}

/* A proof with a hole proves nothing. */
static void need(int good, const char *what) {
    if (good) return;
    fprintf(stderr, "gapless power shim: cannot %s: %s\n", what, strerror(errno));
    abort();
}

static void copy_range(int from, int to, off_t at, off_t end) {
    static char buffer[CHUNK]; /* `copying` is held */
    while (at < end) {
        ssize_t got = syscall(SYS_pread64, from, buffer, (size_t)(end - at < CHUNK ? end - at : CHUNK), at);
        if (got <= 0) return; /* it was cut off meanwhile */
        need(syscall(SYS_pwrite64, to, buffer, (size_t)got, at) == got, "keep what was synced");
        at += got;
    }
}

static void keep_names(int directory, uint64_t inode) {
    char target[PATH_BYTES + 64], draft[PATH_BYTES + 64];
    copy_name(target, inode, "names");
    copy_name(draft, inode, "draft");
    int file = (int)syscall(SYS_openat, AT_FDCWD, draft, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
    int again = (int)syscall(SYS_openat, directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    DIR *entries = again < 0 ? NULL : fdopendir(again);
    need(file >= 0 && entries != NULL, "keep the names of a directory");
    for (struct dirent *entry; (entry = readdir(entries)) != NULL;) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        char line[512];
        struct stat status;
        if (fstatat(directory, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0) continue;
        int length = snprintf(line, sizeof line, "%llu %c %s", (unsigned long long)status.st_ino,
                              S_ISDIR(status.st_mode) ? 'd' : 'f', entry->d_name) + 1;
        need(syscall(SYS_write, file, line, (size_t)length) == length, "keep a name");
    }
    closedir(entries);
    syscall(SYS_close, file);
    need(syscall(SYS_renameat2, AT_FDCWD, draft, AT_FDCWD, target, 0) == 0, "keep the names of a directory");
}

static void keep_content(int file, const struct stat *status) {
    char target[PATH_BYTES + 64], draft[PATH_BYTES + 64], link[64];
    copy_name(target, status->st_ino, "synced");
    copy_name(draft, status->st_ino, "draft");
    int to = (int)syscall(SYS_openat, AT_FDCWD, draft, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
    need(to >= 0 && syscall(SYS_ftruncate, to, status->st_size) == 0, "keep what was synced");
    for (off_t at = 0, data; at < status->st_size;) {
        data = syscall(SYS_lseek, file, at, SEEK_DATA);
        if (data < 0) break;
        at = syscall(SYS_lseek, file, data, SEEK_HOLE);
        copy_range(file, to, data, at < 0 || at > status->st_size ? status->st_size : at);
        if (at < 0) break;
    }
    syscall(SYS_close, to);
    need(syscall(SYS_renameat2, AT_FDCWD, draft, AT_FDCWD, target, 0) == 0, "keep what was synced");
    copy_name(target, status->st_ino, "held");
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    syscall(SYS_linkat, AT_FDCWD, link, AT_FDCWD, target, AT_SYMLINK_FOLLOW); /* it may be there, or have no name */
}

/* A descriptor to read a file with, which stays open: closing any descriptor of a file gives up the locks that this
   process has on it (fcntl), and SQLite's lock is one of those. `copying` is held. */
static int reader_of(const char *path, const struct stat *status) {
    static struct { dev_t device; ino_t inode; int file; } readers[READERS];
    static size_t count;
    for (size_t at = 0; at < count; at++)
        if (readers[at].device == status->st_dev && readers[at].inode == status->st_ino) return readers[at].file;
    need(count < READERS, "keep so many files open");
    int file = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
    if (file < 0) return file;
    readers[count].device = status->st_dev;
    readers[count].inode = status->st_ino;
    readers[count++].file = file;
    return file;
}

/* Makes what is there certain, as it is now. */
static void keep_path(const char *path) {
    struct stat status;
    int error = errno;
    if (fstatat(AT_FDCWD, path, &status, 0) == 0) {
        pthread_mutex_lock(&copying);
        if (S_ISDIR(status.st_mode)) {
            int directory = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
            if (directory >= 0) keep_names(directory, status.st_ino);
            if (directory >= 0) syscall(SYS_close, directory);
        } else if (S_ISREG(status.st_mode)) {
            int file = reader_of(path, &status);
            if (file >= 0 && fstat(file, &status) == 0) keep_content(file, &status);
        }
        pthread_mutex_unlock(&copying);
    }
    errno = error;
}

static void keep(int descriptor) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor); /* it may be open to write only, so it is opened anew */
    keep_path(link);
}

/* Whether this call is the one at which the process is to end. */
static int is_last(enum field field) { return fields[field] > 0 && --fields[field] == 0; }

static void end(void) {
    syscall(SYS_kill, (pid_t)syscall(SYS_getpid), SIGKILL);
    for (;;) pause();
}

static void cut_when(enum field field) {
    if (is_last(field)) end();
}

static void hold(void) {
    struct timespec pause = {0, 1000000};
    if (!fields[HOLD]) return;
    fields[HELD]++;
    while (fields[HOLD]) nanosleep(&pause, NULL);
    fields[HELD]--;
}

/* ------------------------------------------------------------------------------------------------ syncs */

/* Whether this sync is one that finds a broken disk; it makes nothing certain. */
static int failing(void) {
    if (fields[FAIL_SYNCS] == 0) return 0;
    fields[FAIL_SYNCS]--;
    errno = EIO;
    return 1;
}

static int sync_with(int number, int descriptor) {
    if (!concerns(descriptor)) return (int)syscall(number, descriptor);
    cut_when(CUT_AT_SYNC);
    if (failing()) return -1;
    fields[SYNCS]++;
    keep(descriptor);
    hold();
    return 0;
}

int fsync(int descriptor) { return sync_with(SYS_fsync, descriptor); }

int fdatasync(int descriptor) { return sync_with(SYS_fdatasync, descriptor); }

static int keep_visited(const char *path, const struct stat *status, int kind, struct FTW *place) {
    (void)status, (void)place;
    if (kind == FTW_F || kind == FTW_D || kind == FTW_DP) keep_path(path);
    return 0;
}

static void sync_all(void) {
    cut_when(CUT_AT_SYNC);
    fields[SYNCS]++;
    nftw(root, keep_visited, 16, FTW_PHYS);
    hold();
}

void sync(void) {
    if (active) sync_all();
    else syscall(SYS_sync);
}

int syncfs(int descriptor) {
    if (!concerns(descriptor)) return (int)syscall(SYS_syncfs, descriptor);
    sync_all();
    return 0;
}

int msync(void *address, size_t length, int flags) {
    if (!active || !(flags & MS_SYNC)) return (int)syscall(SYS_msync, address, length, flags);
    char line[PATH_BYTES + 128], path[PATH_BYTES];
    unsigned long begin, end, wanted = (unsigned long)address;
    FILE *maps = fopen("/proc/self/maps", "re");
    int found = 0;
    while (maps != NULL && !found && fgets(line, sizeof line, maps) != NULL)
        found = sscanf(line, "%lx-%lx %*s %*s %*s %*s %4095[^\n]", &begin, &end, path) == 3 && begin <= wanted &&
                wanted < end;
    if (maps != NULL) fclose(maps);
    if (!found || !is_below(path)) return (int)syscall(SYS_msync, address, length, flags);
    cut_when(CUT_AT_SYNC);
    if (failing()) return -1;
    fields[SYNCS]++;
    keep_path(path);
    hold();
    return 0;
}

/* ----------------------------------------------------------------------------------------------- writes */

/* A write to a file that was opened with O_DSYNC is certain when it returns; other parts of the file are not. */
static void keep_range(int descriptor, off_t at, off_t length) {
    char link[64], name[PATH_BYTES + 64];
    struct stat status;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    if (fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) return;
    copy_name(name, status.st_ino, "synced");
    pthread_mutex_lock(&copying);
    int file = reader_of(link, &status);
    int to = (int)syscall(SYS_openat, AT_FDCWD, name, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    need(file >= 0 && to >= 0, "keep what was written in sync");
    copy_range(file, to, at, at + length);
    syscall(SYS_close, to);
    pthread_mutex_unlock(&copying);
    fields[SYNCS]++;
}

static ssize_t put(int number, int descriptor, off64_t at, long second, long third, long fourth, long fifth,
                   long sixth) {
    if (!concerns(descriptor)) return syscall(number, descriptor, second, third, fourth, fifth, sixth);
    if (is_last(CUT_AT_WRITE)) { /* half of it is written, where a length says how much that is */
        if (number == SYS_write || number == SYS_pwrite64) syscall(number, descriptor, second, third / 2, fourth);
        end();
    }
    if (fields[FULL]) {
        errno = ENOSPC;
        return -1;
    }
    fields[WRITES]++;
    ssize_t result = syscall(number, descriptor, second, third, fourth, fifth, sixth);
    int error = errno;
    if (result > 0 && (syscall(SYS_fcntl, descriptor, F_GETFL) & O_DSYNC))
        keep_range(descriptor, at < 0 ? syscall(SYS_lseek, descriptor, 0L, SEEK_CUR) - result : at, result);
    errno = error;
    return result;
}

ssize_t write(int descriptor, const void *data, size_t length) {
    return put(SYS_write, descriptor, -1, (long)data, (long)length, 0, 0, 0);
}

ssize_t pwrite64(int descriptor, const void *data, size_t length, off64_t at) {
    return put(SYS_pwrite64, descriptor, at, (long)data, (long)length, (long)at, 0, 0);
}

ssize_t pwrite(int descriptor, const void *data, size_t length, off_t at) {
    return pwrite64(descriptor, data, length, at);
}

ssize_t writev(int descriptor, const struct iovec *data, int count) {
    return put(SYS_writev, descriptor, -1, (long)data, count, 0, 0, 0);
}

ssize_t pwritev64(int descriptor, const struct iovec *data, int count, off64_t at) {
    return put(SYS_pwritev, descriptor, at, (long)data, count, (long)at, 0, 0);
}

ssize_t pwritev(int descriptor, const struct iovec *data, int count, off_t at) {
    return pwritev64(descriptor, data, count, at);
}

/* A file that was certain in the beginning is copied before it can be changed. */
static void keep_before_change(int from, const char *path) {
    struct stat status;
    int error = errno;
    if (fstatat(from, path, &status, 0) == 0 && S_ISREG(status.st_mode) && is_there(status.st_ino, "base") &&
        !is_there(status.st_ino, "synced")) {
        int file = (int)syscall(SYS_openat, from, path, O_RDONLY | O_CLOEXEC, 0);
        if (file >= 0) {
            if (concerns(file)) keep(file); /* the number may be that of another disk's file */
            syscall(SYS_close, file);
        }
    }
    errno = error;
}

/* What is cut off a file may be gone at once, long before a sync: the worst that a file system may do. */
static void cut_off(int descriptor, off_t length) {
    char name[PATH_BYTES + 64];
    struct stat status, kept;
    if (!concerns(descriptor) || fstat(descriptor, &status) != 0) return;
    copy_name(name, status.st_ino, "synced");
    pthread_mutex_lock(&copying);
    if (stat(name, &kept) == 0 && kept.st_size > length)
        need(syscall(SYS_truncate, name, length) == 0, "cut off what was synced");
    pthread_mutex_unlock(&copying);
}

static int open_with(int from, const char *path, int flags, mode_t mode) {
    if (active && (flags & (O_WRONLY | O_RDWR | O_TRUNC))) keep_before_change(from, path);
    int file = (int)syscall(SYS_openat, from, path, flags, mode);
    if (active && file >= 0 && (flags & O_TRUNC)) cut_off(file, 0);
    return file;
}

#define OPEN_CALL(name, parameters, from)                        \
    int name parameters {                                        \
        mode_t mode = 0;                                         \
        if (flags & (O_CREAT | O_TMPFILE)) {                     \
            va_list more;                                        \
            va_start(more, flags);                               \
            mode = (mode_t)va_arg(more, int);                    \
            va_end(more);                                        \
        }                                                        \
        return open_with(from, path, flags, mode);               \
    }

OPEN_CALL(open, (const char *path, int flags, ...), AT_FDCWD)
OPEN_CALL(open64, (const char *path, int flags, ...), AT_FDCWD)
OPEN_CALL(openat, (int from, const char *path, int flags, ...), from)
OPEN_CALL(openat64, (int from, const char *path, int flags, ...), from)

int creat(const char *path, mode_t mode) { return open_with(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }

int creat64(const char *path, mode_t mode) { return creat(path, mode); }

int truncate64(const char *path, off64_t length) {
    if (!active) return (int)syscall(SYS_truncate, path, length);
    int file = open_with(AT_FDCWD, path, O_WRONLY | O_CLOEXEC, 0);
    if (file < 0) return -1;
    int result = ftruncate(file, length), error = errno;
    syscall(SYS_close, file);
    errno = error;
    return result;
}

int ftruncate64(int descriptor, off64_t length) {
    int result = (int)syscall(SYS_ftruncate, descriptor, length), error = errno;
    if (active && result == 0) cut_off(descriptor, length);
    errno = error;
    return result;
}

int ftruncate(int descriptor, off_t length) { return ftruncate64(descriptor, length); }

int truncate(const char *path, off_t length) { return truncate64(path, length); }
