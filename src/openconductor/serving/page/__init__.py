"""The page of a server: what its visitors ask is answered as over the APIs."""
