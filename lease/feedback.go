package lease

// Feedback is what an attempt has last said of itself. It decides nothing; it is kept for people.
type Feedback struct {
	Attempt  uint32
	Fraction float64 // 0 to 1
	Stage    string
	Message  string
	Metrics  map[string]float64
	Chunks   []Chunk // the last ones, oldest first
}

// Chunk is a piece of an attempt's output.
type Chunk struct {
	Channel  string
	Index    uint64
	MIMEType string
	Text     string
	Data     []byte // instead of Text where not nil
	Metadata map[string]string
}

// Size is about how many bytes the chunk has.
func (c *Chunk) Size() int {
	n := len(c.Text) + len(c.Data)
	for k, v := range c.Metadata {
		n += len(k) + len(v)
	}
	return n
}
