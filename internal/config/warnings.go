package config

// Warnings lists what c says that is allowed, works, and had better be otherwise.
func (c *Config) Warnings() []Finding {
	var findings []Finding
	warn := func(p path, what, fix string) {
		at := c.at(p)
		findings = append(findings, Finding{File: c.Path, Line: at.line, Column: at.column, Key: p.String(), What: what, Fix: fix})
	}
	if !c.keys.Seals() && len(c.Steps) > 0 {
		warn(path{"encryption_key"}, "is not set: the fence's table keeps the request of an open row, and answers, so that everybody can read them there",
			"make one by \"openssl rand -base64 32\" and write encryption_key: \"${ZABOR_KEY}\"")
	}
	inOrder(findings)
	return findings
}
