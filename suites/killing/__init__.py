"""Real processes under `kill -9`: the workers that load a broker, their ledgers, and the judge of both."""
