/** Sources that the build turns into text. */
declare module "*?text" {
  const text: string;
  export default text;
}
