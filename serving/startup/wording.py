"""How times are written."""


def duration(seconds: float) -> str:
    """Minutes and seconds, with hours from the first on: 4:07, 1:02:03."""
    whole = max(0, int(seconds))
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"
