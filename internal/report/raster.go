package report

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/srwiley/rasterx"
	"golang.org/x/image/font"
	"golang.org/x/image/font/gofont/gobold"
	"golang.org/x/image/font/gofont/goregular"
	"golang.org/x/image/font/opentype"
	"golang.org/x/image/math/fixed"
)

// raster paints what sheet.svg has written: its elements, its style and no more of SVG.
type raster struct {
	img   *image.RGBA
	scale float64
	rules []styleRule
	x, y  []float64   // translations of the open groups
	from  image.Point // of the part of the picture that a shape is drawn in
	fonts map[string]*opentype.Font
	text  *styled // the text whose characters come
}

type styleRule struct {
	classes []string
	set     map[string]string
}

type styled struct {
	set       map[string]string
	attribute map[string]string
}

// paint renders a file of sheet.svg as PNG of a size, at a number of pixels per unit of its box.
func paint(svg string, size Size, scale float64) (_ []byte, err error) {
	r := &raster{scale: scale, img: image.NewRGBA(image.Rect(0, 0, size.Width, size.Height)),
		x: []float64{0}, y: []float64{0}, fonts: map[string]*opentype.Font{}}
	for weight, data := range map[string][]byte{"": goregular.TTF, "600": gobold.TTF} {
		if r.fonts[weight], err = opentype.Parse(data); err != nil {
			return nil, fmt.Errorf("read the built-in font: %v", err)
		}
	}
	draw.Draw(r.img, r.img.Bounds(), image.NewUniform(hexColour(palette()["surface"][0], 1)), image.Point{},
		draw.Src)
	if err := r.walk(svg); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := png.Encode(&out, r.img); err != nil {
		return nil, fmt.Errorf("encode PNG: %v", err)
	}
	return out.Bytes(), nil
}

func (r *raster) walk(svg string) error {
	dec := xml.NewDecoder(strings.NewReader(svg))
	skip := "" // the element whose text is not drawn
	for {
		tok, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the chart: %v", err)
		}
		switch tok := tok.(type) {
		case xml.StartElement:
			if tok.Name.Local == "title" || tok.Name.Local == "style" {
				skip = tok.Name.Local
			}
			r.start(tok)
		case xml.EndElement:
			switch tok.Name.Local {
			case "g":
				r.x, r.y = r.x[:len(r.x)-1], r.y[:len(r.y)-1]
			case "text":
				r.text = nil
			case skip:
				skip = ""
			}
		case xml.CharData:
			switch {
			case skip == "style":
				r.readStyle(string(tok))
			case r.text != nil && skip == "":
				if err := r.write(r.text, string(tok)); err != nil {
					return err
				}
			}
		}
	}
}

var ruleForm = regexp.MustCompile(`((?:\.[a-z0-9-]+)+(?:,(?:\.[a-z0-9-]+)+)*)\{([^}]*)\}`)

// readStyle keeps the rules of classes, those of fewer classes first, as CSS weighs them.
func (r *raster) readStyle(css string) {
	for _, m := range ruleForm.FindAllStringSubmatch(css, -1) {
		set := map[string]string{}
		for _, pair := range strings.Split(m[2], ";") {
			name, value, _ := strings.Cut(pair, ":")
			set[name] = value
		}
		for _, s := range strings.Split(m[1], ",") {
			r.rules = append(r.rules, styleRule{strings.Split(s[1:], "."), set})
		}
	}
	slices.SortStableFunc(r.rules, func(a, b styleRule) int { return len(a.classes) - len(b.classes) })
}

func (r *raster) style(e xml.StartElement) *styled {
	s := &styled{map[string]string{"fill": "#000000", "stroke-width": "1"}, map[string]string{}}
	for _, a := range e.Attr {
		s.attribute[a.Name.Local] = a.Value
		if a.Name.Local == "stroke-width" {
			s.set[a.Name.Local] = a.Value
		}
	}
	classes := strings.Fields(s.attribute["class"])
	for _, rule := range r.rules {
		if !slices.ContainsFunc(rule.classes, func(c string) bool { return !slices.Contains(classes, c) }) {
			maps.Copy(s.set, rule.set)
		}
	}
	return s
}

func (s *styled) number(name string) float64 {
	return numberOf(strings.TrimSuffix(s.attribute[name], "%"))
}

func (r *raster) start(e xml.StartElement) {
	s := r.style(e)
	switch e.Name.Local {
	case "g":
		dx, dy := 0.0, 0.0
		if at, ok := strings.CutPrefix(s.attribute["transform"], "translate("); ok {
			x, y, _ := strings.Cut(strings.TrimSuffix(at, ")"), " ")
			dx, dy = numberOf(x), numberOf(y)
		}
		r.x, r.y = append(r.x, r.x[len(r.x)-1]+dx), append(r.y, r.y[len(r.y)-1]+dy)
	case "text":
		r.text = s
	case "path":
		r.shape(s, func(a rasterx.Adder) { r.path(a, s.attribute["d"]) })
	case "circle":
		r.shape(s, func(a rasterx.Adder) {
			rasterx.AddCircle(r.px(s.number("cx")), r.py(s.number("cy")), s.number("r")*r.scale, a)
		})
	case "rect":
		if s.attribute["width"] == "100%" {
			return // the ground, which is painted
		}
		x, y, round := s.number("x"), s.number("y"), s.number("rx")*r.scale
		r.shape(s, func(a rasterx.Adder) {
			rasterx.AddRoundRect(r.px(x), r.py(y), r.px(x+s.number("width")), r.py(y+s.number("height")),
				round, round, 0, rasterx.RoundGap, a)
		})
	}
}

func (r *raster) px(x float64) float64 { return (x+r.x[len(r.x)-1])*r.scale - float64(r.from.X) }
func (r *raster) py(y float64) float64 { return (y+r.y[len(r.y)-1])*r.scale - float64(r.from.Y) }

// hull is the box around the points of a shape.
type hull struct{ box fixed.Rectangle26_6 }

func (e *hull) Start(p fixed.Point26_6) { e.Line(p) }
func (e *hull) Line(p fixed.Point26_6) {
	if e.box.Empty() && e.box.Min.X == 0 {
		e.box = fixed.Rectangle26_6{Min: p, Max: p.Add(fixed.P(1, 1))}
	}
	e.box = e.box.Union(fixed.Rectangle26_6{Min: p, Max: p.Add(fixed.P(1, 1))})
}
func (e *hull) QuadBezier(b, c fixed.Point26_6)    { e.Line(b); e.Line(c) }
func (e *hull) CubeBezier(b, c, d fixed.Point26_6) { e.QuadBezier(b, c); e.Line(d) }
func (e *hull) Stop(bool)                          {}

// shape fills and strokes what add draws.
func (r *raster) shape(s *styled, add func(rasterx.Adder)) {
	var e hull
	add(&e)
	around := int(numberOf(s.set["stroke-width"])*r.scale) + 2
	part := image.Rect(e.box.Min.X.Floor(), e.box.Min.Y.Floor(), e.box.Max.X.Ceil(), e.box.Max.Y.Ceil()).
		Inset(-around).Intersect(r.img.Bounds())
	if part.Empty() {
		return
	}
	r.from = part.Min
	defer func() { r.from = image.Point{} }()
	w, h := part.Dx(), part.Dy()
	within, ok := r.img.SubImage(part).(*image.RGBA)
	if !ok {
		return // it is one, of the same picture
	}
	scanner := func() *rasterx.ScannerGV { return rasterx.NewScannerGV(w, h, within, part) }
	if fill := s.set["fill"]; fill != "none" {
		f := rasterx.NewFiller(w, h, scanner())
		f.SetColor(hexColour(fill, numberOf(cmp.Or(s.set["fill-opacity"], "1"))))
		add(f)
		f.Draw()
	}
	stroke := s.set["stroke"]
	if stroke == "" || stroke == "none" {
		return
	}
	dash := each(strings.Fields(s.set["stroke-dasharray"]), func(d string) float64 {
		return numberOf(d) * r.scale
	})
	width := fixed.Int26_6(numberOf(s.set["stroke-width"]) * r.scale * 64)
	d := rasterx.NewDasher(w, h, scanner())
	d.SetStroke(width, 4<<6, rasterx.ButtCap, nil, rasterx.FlatGap, rasterx.MiterClip, dash, 0)
	d.SetColor(hexColour(stroke, numberOf(cmp.Or(s.set["stroke-opacity"], "1"))))
	add(d)
	d.Draw()
}

var pathForm = regexp.MustCompile(`[MLHVhvZ]|-?[0-9.]+`)

// path follows the commands that canvas writes.
func (r *raster) path(a rasterx.Adder, d string) {
	x, y, open := 0.0, 0.0, false
	words := pathForm.FindAllString(d, -1)
	command := ""
	next := func() float64 {
		if len(words) == 0 {
			return 0
		}
		v := numberOf(words[0])
		words = words[1:]
		return v
	}
	for len(words) > 0 {
		if strings.Contains("MLHVhvZ", words[0]) {
			command, words = words[0], words[1:]
		}
		switch command {
		case "M", "L":
			x, y = next(), next()
		case "H":
			x = next()
		case "V":
			y = next()
		case "h":
			x += next()
		case "v":
			y += next()
		}
		switch at := rasterx.ToFixedP(r.px(x), r.py(y)); command {
		case "Z":
			a.Stop(true)
			open = false
		case "M":
			if open {
				a.Stop(false)
			}
			a.Start(at)
			open = true
		default:
			a.Line(at)
		}
	}
	if open {
		a.Stop(false)
	}
}

// write draws a text in the built-in font.
func (r *raster) write(s *styled, text string) error {
	size := numberOf(strings.TrimSuffix(s.set["font-size"], "px")) * r.scale
	face, err := opentype.NewFace(r.fonts[s.set["font-weight"]], &opentype.FaceOptions{Size: size, DPI: 72})
	if err != nil {
		return fmt.Errorf("size the built-in font: %v", err)
	}
	d := font.Drawer{Dst: r.img, Src: image.NewUniform(hexColour(s.set["fill"], 1)), Face: face,
		Dot: rasterx.ToFixedP(r.px(s.number("x")), r.py(s.number("y")))}
	switch s.attribute["text-anchor"] {
	case "middle":
		d.Dot.X -= d.MeasureString(text) / 2
	case "end":
		d.Dot.X -= d.MeasureString(text)
	}
	d.DrawString(text)
	return face.Close()
}

// hexColour reads #rrggbb.
func hexColour(text string, opacity float64) color.NRGBA {
	v, err := strconv.ParseUint(strings.TrimPrefix(text, "#"), 16, 32)
	if err != nil {
		v = 0 // the style names no other form
	}
	return color.NRGBA{uint8(v >> 16), uint8(v >> 8), uint8(v), uint8(opacity*255 + .5)}
}
