"""Every Debian package that Moet ships, as repositories."""

load(":bookworm.lock.bzl", "BOOKWORM")
load(":fetch.bzl", "apt_index", "deb_file")

def deb_repository(package):
    """Returns the repository name of one locked package, e.g. deb_libstdcxx6 for libstdc++6."""
    return "deb_" + package.replace("+", "x").replace("-", "_").replace(".", "_")

def deb_labels(packages = BOOKWORM):
    """Labels of locked packages. Fails when one is not in the lock.

    Args:
      packages: their names; all that are locked, if absent.

    Returns:
      Labels, in the order of the names.
    """
    for package in packages:
        if package not in BOOKWORM:
            fail("%s: not locked; expected a package of third_party/debian/bookworm.lock.bzl" % package)
    return ["@%s//:deb" % deb_repository(package) for package in packages]

def debian_repositories():
    """Declares `@deb_<name>//:deb` for each locked package; nothing is fetched until a target wants it."""
    apt_index(name = "debian_apt_index")
    for package, pin in BOOKWORM.items():
        deb_file(
            name = deb_repository(package),
            file = pin["file"],
            package = package,
            sha256 = pin["sha256"],
            version = pin["version"],
        )
