"""`pilotfish bench`: what speculation brings on this machine, measured against the target alone in the same run.

`prompts` are what is asked, `plan` says by whom and in which order, `measure` asks, `figures` are the arithmetic, and
`record`, `report` and `plot` keep and show what came of it. Only `measure` and `meters` look at a clock or a device.
"""
