"""What a job needs, checked one by one: readiness asks for the cheap ones, `mathrag doctor` for all."""
