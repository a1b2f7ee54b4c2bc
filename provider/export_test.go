package provider

// BeforeWrite has f called between the reading of the clock and the first byte.
func (p *Provider) BeforeWrite(f func()) { p.beforeWrite = f }
