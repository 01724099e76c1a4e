/* A SPANK plugin (spank(8)) as many sites have one: each job has its own /tmp, /var/tmp and /dev/shm, in a mount namespace.
 *
 * Its argument in plugstack.conf is the folder below which a job's own folders are, BASE/JOB.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <slurm/spank.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

SPANK_PLUGIN(private_tmp, 1);

static int bind_own(const char *own, const char *at)
{
    if (mkdir(own, 01777) && errno != EEXIST) {
        slurm_error("private_tmp: mkdir %s: %s", own, strerror(errno));
        return -1;
    }
    chmod(own, 01777);
    if (mount(own, at, NULL, MS_BIND, NULL)) {
        slurm_error("private_tmp: mount %s: %s", at, strerror(errno));
        return -1;
    }
    return 0;
}

/* In slurmstepd, before it becomes the user: of the batch script, and of each step that the job's srun starts. */
int slurm_spank_init_post_opt(spank_t sp, int argc, char **argv)
{
    uint32_t job = 0;
    char base[1024], own[1100];

    if (!spank_remote(sp) || argc < 1)
        return 0;
    if (spank_get_item(sp, S_JOB_ID, &job) != ESPANK_SUCCESS)
        return -1;
    snprintf(base, sizeof(base), "%s/%u", argv[0], job);
    if (mkdir(base, 0755) && errno != EEXIST) {
        slurm_error("private_tmp: mkdir %s: %s", base, strerror(errno));
        return -1;
    }
    if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_SLAVE | MS_REC, NULL)) {
        slurm_error("private_tmp: no namespace: %s", strerror(errno));
        return -1;
    }
    snprintf(own, sizeof(own), "%s/tmp", base);
    if (bind_own(own, "/tmp"))
        return -1;
    snprintf(own, sizeof(own), "%s/var_tmp", base);
    if (bind_own(own, "/var/tmp"))
        return -1;
    snprintf(own, sizeof(own), "%s/shm", base);
    return bind_own(own, "/dev/shm");
}
