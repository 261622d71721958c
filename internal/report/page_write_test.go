package report
import ("os";"testing")
func TestWrite(t *testing.T){ p:=os.Getenv("PAGES"); if p=="" {return}
for n,d:=range samples(){ b,_:=HTML(d); os.WriteFile(p+"/"+n+".html",b,0o644); j,_:=JSON(d); os.WriteFile(p+"/"+n+".json",j,0o644)}}
