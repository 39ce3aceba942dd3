"""wheel_layers: a closure's wheels in the layers that a line asks for."""

load("//third_party/python:repositories.bzl", "CLOSURES", "wheel_repository")
load(":mtime.bzl", "LAYER_MTIME")
load(":wheel_layer.bzl", "wheel_layer")

def wheel_layers(line):
    """Declares one wheel_layer for each group of the line.

    Fails on a wheel in two groups, an unknown one, and unless exactly one group takes the rest, so
    that no wheel is left out in silence.

    Args:
      line: what line() returned.

    Returns:
      The layers' labels, in order.
    """
    wheels = CLOSURES[line.closure]
    named = {}
    for group in line.groups:
        for project in group.projects:
            if project not in wheels:
                fail("%s: layer %s names %s, which the closure %s does not have" % (line.name, group.name, project, line.closure))
            if project in named:
                fail("%s: layers %s and %s both name %s" % (line.name, named[project], group.name, project))
            named[project] = group.name
    if len([group for group in line.groups if group.rest]) != 1:
        fail("%s: exactly one layer group has rest = True" % line.name)
    for name in line.drop:
        if name not in [group.name for group in line.groups]:
            fail("%s: drop names layer %s, which no group has" % (line.name, name))

    for group in line.groups:
        projects = group.projects
        if group.rest:
            projects = projects + [project for project in wheels if project not in named]
        wheel_layer(
            name = group.name,
            comment = group.comment,
            drop = line.drop.get(group.name, []),
            mtime = LAYER_MTIME,
            wheels = ["@%s//:file" % wheel_repository(line.closure, project) for project in projects],
        )
    return [":" + group.name for group in line.groups]
