"""The words that an image line's data is written in: line, layer_group and step."""

def layer_group(name, projects = [], rest = False, comment = ""):
    """A set of wheels that share one layer.

    Args:
      name: the layer's name.
      projects: normalised project names, as the closure's lock has them.
      rest: takes every wheel of the closure that no group names; exactly one group of a line does.
      comment: for the image's history; default: the projects' number or name.

    Returns:
      A struct with these fields.
    """
    if not comment:
        comment = "wheels that no other layer names" if rest else ", ".join(projects)
    return struct(name = name, projects = projects, rest = rest, comment = comment)

def step(number, name, patches, switch, default, numerics, reason, evidence, drop_when, on = "1", kernels = []):
    """A numbered change of one line's image.

    Args:
      number: never reused, also not after the step is retired.
      name: what changes, in words joined by "-".
      patches: file names in the line's series.
      switch: environment variable VLLM_MOET_<NAME>; "0" gives back upstream's path.
      default: the switch's value when it is not set.
      numerics: "identical", "rounding", "format" or "none" (docs/maintain.md).
      reason: what is wrong without the step, in one sentence.
      evidence: label of the test, or path of the receipt, that shows it.
      drop_when: what upstream must do for the step to go.
      on: the switch's other value.
      kernels: names of kernel families.

    Returns:
      A struct with these fields, as the image's manifest has them.
    """
    return struct(
        default = default,
        drop_when = drop_when,
        evidence = evidence,
        kernels = kernels,
        name = name,
        number = number,
        numerics = numerics,
        on = on,
        patches = patches,
        reason = reason,
        switch = switch,
    )

def line(name, title, description, base, release, closure, sources, groups, drop, links, env, steps):
    """One model on one kind of machine.

    Args:
      name: the image's repository name.
      title: a few words, for labels.
      description: one sentence, for labels.
      base: pin of what is patched (name, version, commit, released).
      release: N of the tag <name>:<base><version>-r<N>: the next release of this tree.
      closure: name of the Python lock.
      sources: pins whose commits the manifest states.
      groups: layer_group()s, from what changes rarely to what changes often.
      drop: globs of files not to install, by layer name.
      links: symbolic links of the image, path to target; paths have no leading slash.
      env: environment of every process in the image.
      steps: step()s.

    Returns:
      A struct with these fields, `tag`, and `base_tag` (release 0: the pinned upstream without steps). Images that
      are not built with --config=release have these tags with -dev after them.
    """
    return struct(
        base = base,
        base_tag = "%s:%s%s-r0" % (name, base.name, base.version),
        closure = closure,
        description = description,
        drop = drop,
        env = env,
        groups = groups,
        links = links,
        name = name,
        release = release,
        sources = sources,
        steps = steps,
        tag = "%s:%s%s-r%d" % (name, base.name, base.version, release),
        title = title,
    )
