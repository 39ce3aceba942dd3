"""debian_rootfs: the root file system that an image starts from."""

load("//images/private:mtime.bzl", "LAYER_MTIME")
load("//images/private:rootfs.bzl", "rootfs_layer")

def debian_rootfs(name, debs, policy, comment, **kwargs):
    """Declares the layer of a root file system made of Debian packages, whose scripts are not run.

    The layer is a pure function of the packages and the policy. The output group `layer` has its
    descriptor and its listing too.

    Args:
      name: target name, and the layer's.
      debs: labels of the packages, in any order.
      policy: TOML file: what to drop, link and create; images/oci/rootfs_policy.py describes it.
      comment: what the layer holds, for the image's history.
      **kwargs: passed to the rule (visibility, tags, ...).
    """
    rootfs_layer(
        name = name,
        comment = comment,
        debs = debs,
        mtime = LAYER_MTIME,
        policy = policy,
        **kwargs
    )
