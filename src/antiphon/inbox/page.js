// Tells a tab that another person was first. The page works without it.
for (const time of document.querySelectorAll("time")) time.title = new Date(time.dateTime).toLocaleString();
const form = document.querySelector("form[data-round]");
let busy = false;
async function look() {
  if (busy || document.hidden) return;
  busy = true;
  try {
    const reply = await fetch(location.pathname.replace(/\/$/, "") + "/state" + location.search);
    const state = reply.ok ? await reply.json() : { status: "gone" };
    if (state.status === "waiting" && String(state.round) === form.dataset.round) return;
    clearInterval(timer);
    const told = document.createElement("p");
    told.className = "told";
    told.setAttribute("role", "alert");
    told.textContent = (state.by ? `Already answered by ${state.by}.` : "This takes no answer any more.") + " ";
    const again = document.createElement("a");
    again.href = location.href;
    again.textContent = "See where it stands";
    told.append(again);
    form.prepend(told);
    for (const button of form.querySelectorAll("button")) button.disabled = true;
  } catch {
    // The next look may succeed.
  } finally {
    busy = false;
  }
}
const timer = form && setInterval(look, 5000);
if (form) document.addEventListener("visibilitychange", look);
